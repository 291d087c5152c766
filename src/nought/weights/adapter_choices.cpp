#include "nought/weights/adapter_choices.h"

#include <algorithm>

namespace nought {

namespace {

/// ConfigError for what rows of one batch cannot choose.
void require_choosable(const ModelAdapter& adapter, const NamedAdapter& named) {
  const auto refuse = [&](std::string_view what) {
    fail<ConfigError>(
        "--adapter {0}={1}: {2}, which requests cannot choose: nought serve {1} serves it alone, and nought convert "
        "{1} "
        "MERGED --merge makes a model of it",
        named.name, named.use.folder.string(), what);
  };
  if (!adapter.saved.empty()) refuse("it changes weights of the model itself (modules_to_save, bias)");
  if (!adapter.tokens.empty()) refuse("it replaces rows of tokens (trainable_token_indices)");
  for (const auto& [layer, of] : adapter.layers) {
    if (of.decomposed) refuse("it is decomposed (use_dora)");
    if (of.of_experts) refuse("it adds to experts (target_parameters)");
    if (takes_of_the_base(of.start)) refuse("it begins with a part of the model (init_lora_weights)");
  }
}

}  // namespace

NamedAdapter parse_named_adapter(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const AdapterUse use = equals == std::string::npos ? AdapterUse{} : parse_adapter_use(text.substr(equals + 1));
  require<ConfigError>(!name.empty() && !use.folder.empty() && !holds_adapter(name),
                       "--adapter {0}: expected NAME=FOLDER or NAME=FOLDER=SCALE, as requests choose it by its name: "
                       "for instance my-adapter={0}",
                       text);
  require<IoError>(holds_adapter(use.folder), "--adapter {}: expected the folder of an adapter, with {}, in {}", text,
                   kAdapterConfigFile, use.folder.string());
  return {name, use};
}

AdapterChoices::AdapterChoices(const ModelSource& model, const std::vector<NamedAdapter>& adapters)
    : model_(model), config_(model.config()) {
  require<ConfigError>(adapters.empty() || model.adapters().empty(),
                       "--adapter {}: the model is an adapter itself: serve its model, {}, and give it a name, too",
                       adapters.empty() ? "" : adapters.front().name, model.folder().string());
  for (const NamedAdapter& each : adapters) add(each);
}

void AdapterChoices::add(const NamedAdapter& named) {
  std::vector<ModelAdapter>& choices = config_.adapter.choices;
  require<ConfigError>(std::ranges::find(choices, named.name, &ModelAdapter::name) == choices.end(),
                       "--adapter {}={}: another adapter has this name", named.name, named.use.folder.string());
  require_base(named.use.folder, model_.folder());
  ModelAdapter adapter = combined_adapter({named.use}, model_.config());
  require_choosable(adapter, named);
  sources_.push_back(std::make_unique<ModelSource>(FoundModel{model_.folder(), {}, {named.use}}));
  const auto place = [&](std::string (*name_of)(std::string_view, char, std::string_view), const std::string& layer) {
    for (const char factor : {'A', 'B'})
      places_[name_of(layer, factor, named.name)] = {sources_.back().get(), name_of(layer, factor, {})};
  };
  for (const auto& [layer, of] : adapter.layers) {
    place(low_rank_name, layer), place(embedding_factor_name, layer);
    places_[low_rank_bias_name(layer, named.name)] = {sources_.back().get(), low_rank_bias_name(layer)};
  }
  adapter.name = named.name;
  choices.push_back(std::move(adapter));
}

void AdapterChoices::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                          const Tensor& destination) const {
  const auto found = places_.find(parameter.name);
  if (found == places_.end()) return model_.weights().fill(kind, parameter, elements, destination);
  Parameter own = parameter;
  own.name = found->second.name;
  found->second.source->weights().fill(kind, own, elements, destination);
}

}  // namespace nought
