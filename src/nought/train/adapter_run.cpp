#include "nought/train/adapter_run.h"

#include <algorithm>
#include <cmath>

#include "nought/base/json.h"
#include "nought/comm/first_rank.h"
#include "nought/io/atomic_file.h"
#include "nought/io/convert.h"
#include "nought/tensor/random.h"
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
                                       const ModelAdapter& adapter, const StateSource& base, const StartedBase* started)
    : seed_(seed),
      start_(seed),
      base_(base),
      started_(started),
      layout_(config.weight_layout),
      adapter_(adapter),
      context_(Context::cpu()) {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) parameters_[parameter.name] = &parameter;
}

Tensor AdapterStartValues::whole(const StateSource& source, const std::string& name) const {
  const Parameter& parameter = *parameters_.at(name);
  Tensor values = context_.empty(parameter.placement.global, DType::f32, Category::workspace);
  source.fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
  return values;
}

Tensor AdapterStartValues::made_factor(const std::string& parameter) const {
  for (const char factor : {'A', 'B'}) {
    const std::string end = low_rank_name("", factor).substr(kAdapterPrefix.size());
    if (!parameter.ends_with(end)) continue;
    const std::string layer =
        parameter.substr(kAdapterPrefix.size(), parameter.size() - kAdapterPrefix.size() - end.size());
    const LowRank* of = adapter_.find(layer);
    if (of == nullptr) return {};
    StartFactors made;
    if (takes_of_the_base(of->start)) {
      made = started_->factors_of(*parameters_.at(layer + std::string(kWeightOfLayer)));
    } else if (of->start == AdapterStart::orthogonal) {
      const Shape &a = parameters_.at(low_rank_name(layer, 'A'))->placement.global,
                  &b = parameters_.at(low_rank_name(layer, 'B'))->placement.global;
      made = orthogonal_start(context_, a[1], b[0], of->rank, stable_hash(layer, seed_));
    }
    return factor == 'A' ? made.a : made.b;
  }
  return {};
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

Tensor AdapterStartValues::rows_of_tokens(const std::string& layer) const {
  const std::vector<int32_t>& tokens = adapter_.tokens.find(layer)->second;
  const Parameter& table = *parameters_.at(layer + std::string(kWeightOfLayer));
  const int64_t width = table.placement.global[1];
  const Tensor rows = context_.empty({std::ssize(tokens), width}, DType::f32, Category::workspace);
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    const int64_t token = tokens[static_cast<size_t>(i)];
    base_.fill(StateKind::master, table, Interval{token * width, (token + 1) * width}, rows.slice(i, i + 1));
  }
  return rows;
}

void AdapterStartValues::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                              const Tensor& destination) const {
  if (parameter.role != ParameterRole::adapter)
    return (started_ != nullptr ? *started_ : base_).fill(kind, parameter, elements, destination);
  if (kind != StateKind::master) return start_.fill(kind, parameter, elements, destination);
  const std::string_view layer = layer_of(parameter.name, kMagnitudeOfLayer);
  const std::string_view vocabulary = layer_of(parameter.name, kTokenRowsOfLayer);
  const Tensor all = !layer.empty()        ? magnitudes(layer.substr(kAdapterPrefix.size()))
                     : !vocabulary.empty() ? rows_of_tokens(std::string(vocabulary.substr(kAdapterPrefix.size())))
                                           : made_factor(parameter.name);
  if (!all) return start_.fill(kind, parameter, elements, destination);
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
  if (StartedBase::is_needed(adapter_))
    started_ = std::make_unique<StartedBase>(base_.config(), adapter_, base_.weights());
  config_.base = fs::absolute(base_.folder()).lexically_normal().string();
  if (config_.task_type.empty()) config_.task_type = "CAUSAL_LM";
  config_.fan_in_fan_out = base_.config().weight_layout == WeightLayout::in_out;
}

std::string AdapterRun::begin(ShardedModel& model) const {
  if (from_.empty()) {
    model.load(AdapterStartValues(seed_, base_.config(), model.model(), adapter_, base_.weights(), started_.get()));
    return fmt::format("{} with a new adapter from seed {}", base_.folder().string(), seed_);
  }
  model.load(AdapterWeights({{from_}}, model.model(), base_.config(), weights()));
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
  checkpoint.take_base_from(weights());
}

void AdapterRun::write_config(const fs::path& folder) const {
  write_text_atomically(folder / kAdapterConfigFile, config_.to_json().dump(2) + "\n");
}

namespace {

/// The config of the difference to a start that the base lacks: of twice the rank, with the same scales.
AdapterConfig config_of_difference(AdapterConfig config) {
  const double factor = config.rslora ? std::sqrt(2.0) : 2;
  config.r *= 2, config.alpha *= factor;
  for (auto& [pattern, rank] : config.rank_pattern) rank *= 2;
  for (auto& [pattern, alpha] : config.alpha_pattern) alpha *= factor;
  config.start = AdapterStart::uniform, config.start_iterations = 0;
  return config;
}

/// [x; y] along a dimension, f32.
Tensor joined(const Tensor& x, const Tensor& y, int dim, double factor_of_y, Memory& memory) {
  const std::vector<float> first = x.to_vector<float>(), second = y.to_vector<float>();
  const int64_t rows = x.dim(0), columns = x.dim(1);
  Tensor both = Tensor::empty(memory, dim == 0 ? Shape{2 * rows, columns} : Shape{rows, 2 * columns}, DType::f32,
                              Category::workspace, memory.host_pool());
  const int64_t width = both.dim(1), shift = dim == 0 ? rows * columns : columns;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const auto from = static_cast<size_t>(i * columns + j);
      both.data<float>()[i * width + j] = first[from];
      both.data<float>()[i * width + j + shift] = static_cast<float>(factor_of_y) * second[from];
    }
  return both;
}

const Parameter* parameter_named(const Model& model, const std::string& name) {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      if (parameter.name == name) return &parameter;
  return nullptr;
}

}  // namespace

void AdapterRun::write_tensor(const Parameter& parameter, const Tensor& values, SafetensorsWriter& writer,
                              Memory& memory, const Model& model) const {
  for (const auto& [layer, of] : adapter_.layers)
    for (const char factor : {'A', 'B'}) {
      if (!takes_of_the_base(of.start) || parameter.name != low_rank_name(layer, factor)) continue;
      const StartFactors& start = started_->factors_of(*parameter_named(model, layer + std::string(kWeightOfLayer)));
      // B A - B_0 A_0 = [B, -B_0] [A; A_0]
      return writer.write(parameter.name, factor == 'A' ? joined(values, start.a, 0, 1, memory)
                                                        : joined(values, start.b, 1, -1, memory));
    }
  write_adapter_tensor(parameter, values, adapter_, writer, memory);
}

void AdapterRun::export_to(ShardedModel& model, const TokenizerExport& tokenizer, const fs::path& folder) const {
  std::optional<SafetensorsWriter> writer;
  if (model.mesh().world().rank() == 0) {
    std::vector<TensorSpec> specs = adapter_specs(model.model(), adapter_, model.options().dtype);
    for (TensorSpec& spec : specs)
      for (const auto& [layer, of] : adapter_.layers) {
        if (!takes_of_the_base(of.start)) continue;
        if (spec.name == low_rank_name(layer, 'A')) spec.shape = {2 * spec.shape[0], spec.shape[1]};
        if (spec.name == low_rank_name(layer, 'B')) spec.shape = {spec.shape[0], 2 * spec.shape[1]};
      }
    writer.emplace(folder / kAdapterWeightsFile, std::move(specs));
  }
  for (size_t i = 0; i < model.model().units().size(); ++i) {
    if (!model.model().units()[i]->trained()) continue;
    model.with_parameters(i, [&](const Parameter& parameter, const Tensor& values) {
      if (writer)
        write_tensor(parameter, model.context().on_host(values), *writer, *model.context().memory, model.model());
    });
  }
  if (writer) {
    writer->finish();
    const AdapterConfig written = started_ ? config_of_difference(config_) : config_;
    write_text_atomically(folder / kAdapterConfigFile, written.to_json().dump(2) + "\n");
    export_tokenizer(tokenizer, folder);
  }
  model.mesh().world().barrier().wait();  // when anyone returns, the folder is there
}

}  // namespace nought
