#include "nought/models/adapter_modules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "nought/base/name_pattern.h"
#include "nought/base/text.h"
#include "nought/models/adapter_experts.h"
#include "nought/models/adapter_vocabulary.h"
#include "nought/models/decoder.h"
#include "nought/models/names.h"

namespace nought {

namespace {

/// peft writes the shortest ends of so many names or more.
constexpr size_t kManyNames = 20;

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool ends_in(std::string_view name, std::string_view end) {
  return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
}

/// Python's re.fullmatch and re.match, of the whole name.
bool matches_all(const std::string& pattern, std::string_view name) {
  return NamePattern("\\A(?:" + pattern + ")\\z").found_in(name);
}
/// What a key of rank_pattern or alpha_pattern matches: the end of a name.
bool matches_end(const std::string& pattern, std::string_view name) {
  return NamePattern("\\A(?:.*\\.)?(?:" + pattern + ")\\z").found_in(name);
}

bool matches(const LayerChoice& choice, std::string_view name) {
  if (choice.pattern) return matches_all(*choice.pattern, name);
  return std::ranges::any_of(choice.names, [&](const std::string& end) { return ends_in(name, end); });
}

/// The number of the first ".NAME.N." in a layer's name, where NAME is one of `names` if there are any; -1: none.
int64_t layer_index(std::string_view name, const std::vector<std::string>& names) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find('.', dot + 1);
    const std::string_view part = name.substr(dot + 1, end == std::string_view::npos ? 0 : end - dot - 1);
    if (part.empty() || part.find_first_not_of("0123456789") != std::string_view::npos) continue;
    const std::string_view before = name.substr(0, dot);
    if (names.empty() && before.find('.') == std::string_view::npos) continue;
    if (names.empty() || std::ranges::any_of(names, [&](const std::string& each) { return ends_in(before, each); }))
      return std::stoll(std::string(part));
  }
  return -1;
}

/// peft's default targets.
std::vector<std::string> targets_of_family(const std::string& family) {
  static const std::set<std::string_view> kQueryAndValue{"llama",       "mistral", "mixtral", "gemma", "gemma2",
                                                         "gemma3_text", "opt",     "qwen2",   "qwen3"};
  if (kQueryAndValue.contains(family)) return {"q_proj", "v_proj"};
  if (family == "phi") return {"fc1", "fc2", "q_proj", "v_proj"};
  if (family == "gpt2") return {"c_attn"};
  if (family == "gpt_neox") return {"query_key_value"};
  return {};
}

ModelConfig without_adapter(ModelConfig config) {
  config.adapter = {};
  return config;
}

/// A parameter's name, without ".weight" if it ends so.
std::string layer_or_name(const Parameter& parameter) {
  const std::string_view layer = layer_of(parameter.name, kWeightOfLayer);
  return layer.empty() ? parameter.name : std::string(layer);
}

/// Whether peft saves a layer for this name of modules_to_save.
bool saves(const std::string& name, std::string_view layer) {
  return matches_all("(?:.*\\.)?" + name + "(?:\\..*)?", layer);
}

bool is_of_mlp(std::string_view last) { return last == "gate_proj" || last == "up_proj" || last == "down_proj"; }

/// Routers and the gates of shared experts.
std::vector<AdaptableLayer> gates_of(const ModelConfig& config) {
  std::vector<AdaptableLayer> gates;
  for (int64_t index = 0; index < config.num_layers; ++index) {
    if (!config.has_experts(index)) continue;
    const ExpertModules modules = expert_modules(WeightNames::of(config).layer(index));
    if (!config.experts->router_bias)
      gates.push_back({modules.router, config.hidden_size, config.experts->num_experts});
    if (config.experts->shared_gate) gates.push_back({modules.shared_gate, config.hidden_size, 1});
  }
  return gates;
}

/// But for what lies between rows of tokens and hidden states.
std::vector<AdaptableLayer> layers_of(const Decoder& decoder, WeightLayout layout) {
  const WeightNames names = WeightNames::of(decoder.config());
  std::vector<AdaptableLayer> layers;
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) {
      const std::string_view name = layer_of(parameter.name, kWeightOfLayer);
      if (parameter.role != ParameterRole::matrix || name.empty()) continue;
      if (name == names.project_in || name == names.project_out) continue;
      const Shape& shape = parameter.placement.global;
      const bool out_in = layout == WeightLayout::out_in;
      layers.push_back({std::string(name), shape[out_in ? 1 : 0], shape[out_in ? 0 : 1]});
    }
  return layers;
}

class Resolver {
 public:
  Resolver(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place)
      : adapter_(adapter.targets_all() && all_linear_means_experts(config) ? with_all_experts(adapter) : adapter),
        config_(config),
        place_(place),
        decoder_(without_adapter(config)),
        layers_(layers_of(decoder_, config.weight_layout)) {
    for (const AdaptableLayer& layer : layers_) names_.push_back(layer.name);
    for (const AdaptableLayer& layer : gates_of(config)) names_.push_back(layer.name);
    names_.push_back(WeightNames::of(config).token_embedding);
    names_.push_back(WeightNames::of(config).head);
  }

  ModelAdapter resolve() {
    add_saved();
    result_.dropout = adapter_.dropout;
    const LayerChoice targets = this->targets();
    for (const AdaptableLayer& layer : layers_)
      if (chosen(targets, layer.name)) result_.layers.emplace(layer.name, rank_and_scale(layer));
    add_gates(targets);
    add_parameters();
    add_vocabulary(targets);
    add_biases();
    if (!adapter_.targets_all()) check_targets(targets);
    require<ConfigError>(!result_.empty(),
                         "{}: target_modules chooses no layer: layers_to_transform, exclude_modules "
                         "or modules_to_save leave none of it",
                         place_);
    return std::move(result_);
  }

 private:
  /// Routers, and the gates of shared experts.
  void add_gates(const LayerChoice& targets) {
    for (const AdaptableLayer& gate : gates_of(config_)) {
      if (adapter_.targets_all() ? gate.out > 1 : !chosen(targets, gate.name)) continue;
      if (!excluded(gate.name)) add_alone(gate.name, rank_and_scale(gate));
    }
  }

  /// Raw parameters: the experts of a layer, and routers.
  void add_parameters() {
    std::set<std::string> used;
    for (int64_t index = 0; index < config_.num_layers; ++index) {
      if (!config_.has_experts(index)) continue;
      const ExpertModules modules = expert_modules(WeightNames::of(config_).layer(index));
      const ExpertsConfig& experts = *config_.experts;
      const int64_t width = experts.intermediate_size, hidden = config_.hidden_size;
      const auto add = [&](const std::string& name, const std::string& layer, int64_t in, int64_t out, bool each) {
        for (const std::string& target : adapter_.parameters)
          if (ends_in(name, target)) {
            used.insert(target);
            if (result_.find(layer) != nullptr) continue;
            LowRank of = rank_and_scale({name, in, out});
            of.of_experts = each;
            of.start = plain(of.start);
            result_.layers.emplace(layer, of);
          }
      };
      const std::string gate_up = modules.experts + std::string(kGateUpOfExperts),
                        down = modules.experts + std::string(kDownOfExperts);
      add(gate_up, gate_up, hidden, 2 * width, true);
      add(down, down, width, hidden, true);
      add(modules.router + ".weight", modules.router, hidden, experts.num_experts, false);
    }
    for (const std::string& target : adapter_.parameters)
      require<ConfigError>(used.contains(target),
                           "{}: target_parameters \"{}\" matches no parameter of this {} model{}", place_,
                           one_line(target), config_.family,
                           config_.experts ? ": there are gate_up_proj, down_proj and gate.weight"
                                           : ", which has no experts: remove it");
  }

  /// The embedding of tokens and the head, which "all-linear" does not mean.
  void add_vocabulary(const LayerChoice& targets) {
    const WeightNames names = WeightNames::of(config_);
    const AdaptableLayer table{names.token_embedding, config_.vocab_size, config_.token_width()};
    for (const AdaptableLayer& layer : {table, AdaptableLayer{names.head, table.out, table.in}})
      if (!adapter_.targets_all() && chosen(targets, layer.name)) add_alone(layer.name, rank_and_scale(layer));
  }

  /// What has products alone.
  void add_alone(const std::string& name, const LowRank& of) {
    require<ConfigError>(!of.decomposed && !of.bias, "{}: {} of {} is not supported yet: exclude it", place_,
                         of.bias ? "lora_bias" : "use_dora", name);
    result_.layers.emplace(name, of).first->second.start = plain(of.start);
  }

  /// How what is no layer of attention or an MLP begins.
  static AdapterStart plain(AdapterStart start) {
    return start == AdapterStart::orthogonal || takes_of_the_base(start) ? AdapterStart::uniform : start;
  }

  void add_biases() {
    if (adapter_.bias == AdapterBias::none) return;
    for (const auto& unit : decoder_.units())
      for (const Parameter& parameter : unit->parameters()) {
        const std::string_view layer = layer_of(parameter.name, kBiasOfLayer);
        if (parameter.role != ParameterRole::bias || layer.empty()) continue;
        if (adapter_.bias == AdapterBias::all || result_.find(layer) != nullptr)
          result_.saved.push_back(parameter.name);
      }
  }

  LayerChoice targets() const {
    if (adapter_.targets.given()) return adapter_.targets;
    const std::vector<std::string> names = targets_of_family(config_.family);
    require<ConfigError>(!names.empty() || !adapter_.parameters.empty(),
                         "{}: target_modules is not given, and peft has no default for {}: write \"all-linear\", or "
                         "names such as {}",
                         place_, config_.family, some_layers());
    return {.names = names};
  }

  bool is_saved(std::string_view layer) const {
    return std::ranges::any_of(adapter_.modules_to_save, [&](const std::string& each) { return saves(each, layer); });
  }

  bool excluded(const std::string& name) const {
    return (adapter_.excluded.given() && matches(adapter_.excluded, name)) || is_saved(name);
  }

  bool chosen(const LayerChoice& targets, const std::string& name) const {
    if (excluded(name)) return false;
    // There the names of MLPs are taken for those of experts.
    if (adapter_.targets_all()) return !all_linear_means_experts(config_) || !is_of_mlp(last_part(name));
    if (!matches(targets, name)) return false;
    if (adapter_.layers.empty() || targets.pattern || std::ranges::count(targets.names, name) > 0) return true;
    return std::ranges::count(adapter_.layers, layer_index(name, adapter_.layers_pattern)) > 0;
  }

  /// The value of the first key that matches; keys of one value are not told apart.
  template <class T>
  T pattern_value(const LayerPatterns<T>& patterns, const std::string& name, T otherwise) const {
    for (const auto& [pattern, value] : patterns)
      if (matches_end(pattern, name)) return value;
    return otherwise;
  }

  LowRank rank_and_scale(const AdaptableLayer& layer) const {
    const int64_t rank = pattern_value(adapter_.rank_pattern, layer.name, adapter_.r);
    // The gate of a shared expert has one output, and peft gives it the rank of all.
    require<ConfigError>(layer.out == 1 || rank <= std::min(layer.in, layer.out),
                         "{}: rank {} of {} is above that of its matrix, which is {} x {}: choose at most {}", place_,
                         rank, layer.name, layer.out, layer.in, std::min(layer.in, layer.out));
    require<ConfigError>(adapter_.start != AdapterStart::orthogonal || rank % 2 == 0,
                         "{}: rank {} of {} is odd, and init_lora_weights \"orthogonal\" takes an even one", place_,
                         rank, layer.name);
    const double alpha = pattern_value(adapter_.alpha_pattern, layer.name, adapter_.alpha);
    return {.rank = rank,
            .scale = adapter_.scale_of(rank, alpha),
            .start = adapter_.start,
            .start_iterations = adapter_.start_iterations,
            .decomposed = adapter_.dora,
            .bias = adapter_.bias_of_b};
  }

  /// Every name of the list has to be of use.
  void check_targets(const LayerChoice& targets) const {
    if (targets.pattern) {
      require<ConfigError>(std::ranges::any_of(names_, [&](const auto& name) { return matches(targets, name); }),
                           "{}: target_modules \"{}\" matches no layer of this {} model: it has to match a whole name, "
                           "such as {}",
                           place_, one_line(*targets.pattern), config_.family, names_.front());
      return;
    }
    for (const std::string& target : targets.names) {
      if (std::ranges::any_of(names_, [&](const auto& name) { return ends_in(name, target); })) continue;
      refuse_others(target);
      fail<ConfigError>("{}: target_modules \"{}\" matches no layer of this {} model{}", place_, one_line(target),
                        config_.family, did_you_mean(target, short_names()));
    }
  }

  /// ConfigError for what is there, and is no layer that adapters may be added to.
  void refuse_others(const std::string& target) const {
    for (const auto& unit : decoder_.units())
      for (const Parameter& parameter : unit->parameters()) {
        const std::string layer = layer_or_name(parameter);
        if (!ends_in(layer, target)) continue;
        fail<ConfigError>("{}: target_modules \"{}\" is {}: remove it", place_, one_line(target),
                          kind_of(parameter.role));
      }
  }

  static std::string_view kind_of(ParameterRole role) {
    switch (role) {
      case ParameterRole::expert:
        return "of experts, which target_parameters names (gate_up_proj, down_proj)";
      case ParameterRole::matrix:
        return "between rows of tokens and hidden states, where no adapter is added";
      default:
        return "no matrix of a product";
    }
  }

  void add_saved() {
    std::set<std::string> used;
    const std::string head = WeightNames::of(config_).head;  // where it is tied, no parameter has its name
    for (const std::string& each : adapter_.modules_to_save)
      if (config_.tie_word_embeddings && saves(each, head)) {
        used.insert(each);
        if (!result_.saves(head + ".weight")) result_.saved.push_back(head + ".weight");
      }
    for (const auto& unit : decoder_.units())
      for (const Parameter& parameter : unit->parameters())
        for (const std::string& each : adapter_.modules_to_save)
          if (can_be_trained(parameter.role) && saves(each, layer_or_name(parameter))) {
            used.insert(each);
            if (!result_.saves(parameter.name)) result_.saved.push_back(parameter.name);
          }
    for (const std::string& each : adapter_.modules_to_save)
      require<ConfigError>(used.contains(each), "{}: modules_to_save \"{}\" matches nothing of this {} model", place_,
                           one_line(each), config_.family);
  }

  std::vector<std::string> short_names() const {
    std::set<std::string> all;
    for (const std::string& name : names_) all.emplace(last_part(name));
    return {all.begin(), all.end()};
  }
  /// "q_proj, k_proj, v_proj".
  std::string some_layers() const {
    std::string some;
    std::set<std::string> named;
    for (const std::string& name : names_)
      if (const std::string part(last_part(name)); named.size() < 3 && named.insert(part).second)
        some += (some.empty() ? "" : ", ") + part;
    return some;
  }

  const AdapterConfig adapter_;  // with what "all-linear" means of experts
  const ModelConfig& config_;
  const std::string& place_;
  Decoder decoder_;
  std::vector<AdaptableLayer> layers_;
  std::vector<std::string> names_;  // these have them, and the embedding
  ModelAdapter result_;
};

/// The ends of a name, the shortest first: "q_proj", "self_attn.q_proj" and so on.
std::vector<std::string> ends_of(const std::string& name) {
  std::vector<std::string> ends;
  for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = dot == 0 ? dot : name.rfind('.', dot - 1)) {
    ends.push_back(name.substr(dot + 1));
    if (dot == 0) break;
  }
  ends.push_back(name);
  return ends;
}

/// The shortest ends that tell these names from the others, as peft finds them.
std::vector<std::string> shortest_ends(const std::vector<std::string>& names, const std::set<std::string>& others) {
  std::set<std::string> of_others, chosen;
  for (const std::string& other : others)
    for (std::string& end : ends_of(other)) of_others.insert(std::move(end));
  std::vector<std::vector<std::string>> all;
  for (const std::string& name : names) all.push_back(ends_of(name));
  std::ranges::sort(all);
  for (const std::vector<std::string>& ends : all) {
    const bool covered = std::ranges::any_of(ends, [&](const auto& end) { return chosen.contains(end); });
    const auto shortest = std::ranges::find_if(ends, [&](const auto& end) { return !of_others.contains(end); });
    if (!covered && shortest != ends.end()) chosen.insert(*shortest);
  }
  return {chosen.begin(), chosen.end()};
}

/// All layers that a model has, adapted or not: what names are told from.
std::set<std::string> all_layers(const ModelConfig& config) {
  const Decoder decoder(without_adapter(config));
  std::set<std::string> all;
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) all.insert(layer_or_name(parameter));
  return all;
}

}  // namespace

std::vector<AdaptableLayer> adaptable_layers(const ModelConfig& config) {
  return layers_of(Decoder(without_adapter(config)), config.weight_layout);
}

ModelAdapter resolve_adapter(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place) {
  ModelAdapter chosen = Resolver(adapter, config, place).resolve();
  add_vocabulary_choices(adapter, config, place, chosen);
  return chosen;
}

AdapterConfig with_named_layers(AdapterConfig adapter, const ModelConfig& config) {
  if (adapter.targets.given() && !adapter.targets_all()) return adapter;
  if (!adapter.targets_all()) {
    adapter.targets.names = targets_of_family(config.family);
    return adapter;
  }
  std::vector<std::string> names;
  std::set<std::string> others = all_layers(config);
  if (all_linear_means_experts(config)) adapter.parameters = with_all_experts(adapter).parameters;
  const bool by_parameters = !adapter.parameters.empty();
  for (const auto& [name, of] : resolve_adapter(adapter, config, "adapter").layers) {
    if (by_parameters && (of.of_experts || last_part(name) == "gate")) continue;  // target_parameters has them
    names.push_back(name);
    others.erase(name);
  }
  if (all_linear_means_experts(config)) adapter = with_all_experts(std::move(adapter));
  adapter.targets = {.names = names.size() < kManyNames ? names : shortest_ends(names, others)};
  return adapter;
}

std::vector<std::string> describe_adapter(const ModelAdapter& adapter) {
  std::map<std::tuple<std::string, int64_t, double>, int64_t> kinds;
  for (const auto& [name, of] : adapter.layers) ++kinds[{std::string(last_part(name)), of.rank, of.scale}];
  std::vector<std::string> lines;
  for (const auto& [kind, count] : kinds) {
    const auto& [name, rank, scale] = kind;
    lines.push_back(fmt::format("{} x {}, rank {}, scale {:g}", name, count, rank, scale));
  }
  for (const std::string& name : adapter.saved) lines.push_back(fmt::format("{}, trained whole", name));
  for (const auto& [layer, tokens] : adapter.tokens)
    lines.push_back(fmt::format("{}, rows of {} tokens", last_part(layer), tokens.size()));
  return lines;
}

}  // namespace nought
