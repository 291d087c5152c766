#include "nought/zero/working_weights.h"

#include <algorithm>
#include <iterator>

#include "nought/zero/placement.h"
#include "nought/zero/qat_weights.h"
#include "nought/zero/residency.h"
#include "nought/zero/rounded_weights.h"
#include "nought/zero/sparse_masks.h"
#include "nought/zero/whole_tensor.h"

namespace nought {

namespace {

/// The cuts of which each rank has a part. Where one rank has all, no other computes with it.
Placement cut_by_ranks(Placement placement) {
  std::erase_if(placement.cuts, [](const Cut& cut) { return cut.owner.has_value(); });
  return placement;
}

}  // namespace

std::vector<ChangedWeight> changed_weights(const ShardingOptions& options, const Model& model) {
  std::vector<ChangedWeight> weights;
  if (const auto& quantization = options.weight_quantization)
    for (const RoundedWeight& weight : rounded_weights(*quantization, model))
      weights.push_back({weight.unit, weight.parameter, rounding_of(*quantization, weight)});
  if (options.qat) std::ranges::copy(qat_weights(*options.qat, model), std::back_inserter(weights));
  return weights;
}

std::vector<std::string> describe_changed_weights(const ShardingOptions& options, const Model& model) {
  std::vector<std::string> lines;
  if (options.weight_quantization) lines = describe_rounded_weights(*options.weight_quantization, model);
  if (options.qat) lines.push_back(describe_qat_weights(*options.qat, model));
  if (options.sparse_pruning)
    std::ranges::copy(describe_sparse_masks(*options.sparse_pruning, model), std::back_inserter(lines));
  return lines;
}

WorkingWeights::WorkingWeights(const Context& context, const Mesh& mesh, const std::vector<ChangedWeight>& weights,
                               const Model& model)
    : context_(context), mesh_(mesh), model_(model), states_(model.units().size()) {
  for (const ChangedWeight& weight : weights)
    if (!model_.units()[weight.unit]->elsewhere()) states_[weight.unit].weights.push_back(weight);
}

void WorkingWeights::begin_pass(size_t unit, const Residency& residency, int64_t updates) {
  State& state = states_[unit];
  if (state.weights.empty() || state.passes++ > 0) return;
  state.segments.resize(model_.units()[unit]->segments().size());
  for (const ChangedWeight& weight : state.weights) {
    const int64_t start = weight.change->start();
    const int64_t step = context_.memory->is_virtual() ? std::max(updates, start) : updates;  // what will be needed
    if (step < start) continue;
    const Parameter& parameter = model_.units()[unit]->parameters()[weight.parameter];
    Tensor& segment = state.segments[parameter.segment];
    if (!segment) {
      const Tensor stored = residency.whole({unit, parameter.segment});
      segment = context_.empty(stored.shape(), stored.dtype(), Category::parameters);
      context_.copy(stored, segment);
    }
    change(weight, step, segment.flat(parameter.range.begin, parameter.range.end));
  }
}

void WorkingWeights::end_pass(size_t unit) {
  State& state = states_[unit];
  if (state.weights.empty() || --state.passes > 0) return;
  state.segments.clear();
}

Tensor WorkingWeights::values(SegmentIndex at) const {
  const std::vector<Tensor>& segments = states_[at.unit].segments;
  return segments.empty() ? Tensor{} : segments[at.segment];
}

void WorkingWeights::change(const ChangedWeight& weight, int64_t updates, const Tensor& held) const {
  const Parameter& parameter = model_.units()[weight.unit]->parameters()[weight.parameter];
  using Scope = WeightChange::Scope;
  const Scope scope = weight.change->scope();
  const Placement shared = cut_by_ranks(parameter.placement);
  const int64_t columns = parameter.placement.global[-1];
  const auto shaped = [&](const Tensor& values) {
    return scope == Scope::rows || scope == Scope::matrix ? values.reshape({values.numel() / columns, columns})
                                                          : values;
  };
  if (shared.cuts.empty() || scope == Scope::values || (scope == Scope::rows && parameter.shape[-1] == columns))
    return weight.change->apply(context_, parameter, updates, shaped(held));
  const Tensor joined = without_last_cuts(context_, mesh_, shared, held.reshape(parameter.shape), 0);
  const Tensor whole = joined.flat(0, joined.numel());
  weight.change->apply(context_, parameter, updates, shaped(whole));
  if (context_.memory->is_virtual()) return;  // cuts of columns have a run for each row
  for (const PartRun& run : PlacedTensor(shared, mesh_.grid()).held_by(mesh_.world().rank()).runs())
    context_.copy(whole.flat(run.global.begin, run.global.end), held.flat(run.local.begin, run.local.end));
}

}  // namespace nought
