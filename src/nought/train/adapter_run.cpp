#include "nought/train/adapter_run.h"

#include <algorithm>

#include "nought/base/json.h"
#include "nought/comm/first_rank.h"
#include "nought/io/atomic_file.h"
#include "nought/io/convert.h"
#include "nought/weights/adapted_matrix.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The config of the plan's adapter, or that of the adapter that it goes on from.
AdapterConfig config_of(const RunPlan& plan) {
  require(plan.adapts(), "the run trains no adapter");
  if (plan.adapter_dir.empty()) return *plan.adapter;
  require<IoError>(holds_adapter(plan.adapter_dir), "{} = {}: expected an adapter's folder, with {}",
                   plan.adapter_place, plan.adapter_dir, kAdapterConfigFile);
  return read_adapter_config(plan.adapter_dir);
}

}  // namespace

ModelAdapter adapter_of(const RunPlan& plan, const ModelConfig& config) {
  const std::string place = plan.adapter_dir.empty() ? plan.adapter_place : plan.adapter_dir;
  return resolve_adapter(config_of(plan), config, place);
}

AdapterStartValues::AdapterStartValues(uint64_t seed, const ModelConfig& config, const Model& model,
                                       const ModelAdapter& adapter, const StateSource& base)
    : start_(seed), base_(base), layout_(config.weight_layout), adapter_(adapter), context_(Context::cpu()) {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) parameters_[parameter.name] = &parameter;
}

Tensor AdapterStartValues::whole(const StateSource& source, const std::string& name) const {
  const Parameter& parameter = *parameters_.at(name);
  Tensor values = context_.empty(parameter.placement.global, DType::f32, Category::workspace);
  source.fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
  return values;
}

Tensor AdapterStartValues::magnitudes(std::string_view layer) const {
  const Tensor weight = whole(base_, std::string(layer).append(kWeightOfLayer));
  const LowRank& of = *adapter_.find(layer);
  if (of.start == AdapterStart::random)
    add_product(context_,
                weight_factors(whole(start_, low_rank_name(layer, 'A')), whole(start_, low_rank_name(layer, 'B')),
                               layout_, of.scale, *context_.memory),
                0, weight);
  return output_norms(context_, weight, layout_);
}

void AdapterStartValues::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                              const Tensor& destination) const {
  if (parameter.role != ParameterRole::adapter) return base_.fill(kind, parameter, elements, destination);
  std::string_view layer = layer_of(parameter.name, kMagnitudeOfLayer);
  if (layer.empty() || kind != StateKind::master) return start_.fill(kind, parameter, elements, destination);
  layer.remove_prefix(kAdapterPrefix.size());
  const Tensor all = magnitudes(layer);
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    convert_elements(all.dtype(), all.flat(interval.begin, interval.end).raw(), values.dtype(), values.raw(),
                     interval.size());
  });
}

AdapterRun::AdapterRun(const RunPlan& plan, Communicator& world, const Context& context)
    : seed_(plan.seed),
      from_(plan.adapter_dir),
      base_(FoundModel{plan.model_dir}),
      adapter_(adapter_of(plan, base_.config())),
      config_(with_named_layers(config_of(plan), base_.config())),
      hash_(found_by_first(world, context, [&] { return base_.weights_hash(); })) {
  config_.base = fs::absolute(base_.folder()).lexically_normal().string();
  if (config_.task_type.empty()) config_.task_type = "CAUSAL_LM";
  config_.fan_in_fan_out = base_.config().weight_layout == WeightLayout::in_out;
}

std::string AdapterRun::begin(ShardedModel& model) const {
  if (from_.empty()) {
    model.load(AdapterStartValues(seed_, base_.config(), model.model(), adapter_, base_.weights()));
    return fmt::format("{} with a new adapter from seed {}", base_.folder().string(), seed_);
  }
  model.load(AdapterWeights({{from_}}, model.model(), base_.config(), base_.weights()));
  return fmt::format("{} with the adapter {}", base_.folder().string(), from_);
}

void AdapterRun::take_up(Checkpoint& checkpoint) const {
  const std::optional<BaseInfo>& of = checkpoint.info().base;
  if (!of) return;
  require<ConfigError>(
      of->hash == hash_,
      "the checkpoint is of an adapter of {}, whose weights have the hash {}, and \"model\" is {}, with "
      "{}: name the model that it was trained on",
      of->path, of->hash, base_.folder().string(), hash_);
  checkpoint.take_base_from(base_.weights());
}

void AdapterRun::write_config(const fs::path& folder) const {
  write_text_atomically(folder / kAdapterConfigFile, config_.to_json().dump(2) + "\n");
}

void AdapterRun::export_to(ShardedModel& model, const TokenizerExport& tokenizer, const fs::path& folder) const {
  std::optional<SafetensorsWriter> writer;
  if (model.mesh().world().rank() == 0)
    writer.emplace(folder / kAdapterWeightsFile, adapter_specs(model.model(), adapter_, model.options().dtype));
  for (size_t i = 0; i < model.model().units().size(); ++i) {
    if (!model.model().units()[i]->trained()) continue;
    model.with_parameters(i, [&](const Parameter& parameter, const Tensor& values) {
      if (writer)
        write_adapter_tensor(parameter, model.context().on_host(values), adapter_, *writer, *model.context().memory);
    });
  }
  if (writer) {
    writer->finish();
    write_config(folder);
    export_tokenizer(tokenizer, folder);
  }
  model.mesh().world().barrier().wait();  // when anyone returns, the folder is there
}

}  // namespace nought
