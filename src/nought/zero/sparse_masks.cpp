#include "nought/zero/sparse_masks.h"

#include <span>

#include <fmt/core.h>

#include "nought/base/math.h"
#include "nought/compress/masks.h"
#include "nought/zero/layer_groups.h"
#include "nought/zero/placement.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/whole_tensor.h"

namespace nought {

namespace {

std::vector<ChosenLayer> pruned_layers(const SparsePruning& pruning, const Model& model) {
  std::vector<NamedPatterns> groups;
  for (const PrunedGroup& group : pruning.groups) groups.push_back({group.name, group.modules});
  return layers_of_groups("compression_training.sparse_pruning.different_groups", groups, model);
}

/// The mask of all elements of a parameter; each matrix of a stack keeps its own share.
Mask whole_mask(std::span<const float> values, const Shape& shape, double dense_ratio) {
  const auto matrices = static_cast<size_t>(shape.rank() > 2 ? shape[0] : 1), size = values.size() / matrices;
  Mask mask;
  for (size_t i = 0; i < matrices; ++i) {
    const Mask part = l1_mask(values.subspan(i * size, size), dense_ratio);
    mask.insert(mask.end(), part.begin(), part.end());
  }
  return mask;
}

class Masking final : public WeightChange {
 public:
  Masking(int64_t start, Tensor bits) : start_(start), bits_(std::move(bits)) {}
  int64_t start() const override { return start_; }
  Scope scope() const override { return Scope::values; }
  void apply(const Context& context, const Parameter& /*parameter*/, int64_t /*updates*/,
             const Tensor& values) const override {
    context.run(KeepMasked{.bits = bits_, .x = values, .y = values});
  }

 private:
  int64_t start_;
  Tensor bits_;
};

}  // namespace

std::vector<std::string> describe_sparse_masks(const SparsePruning& pruning, const Model& model) {
  std::vector<std::string> lines = describe_layers(pruned_layers(pruning, model), pruning.groups.size(), model);
  for (size_t group = 0; group < lines.size(); ++group)
    lines[group] = fmt::format("sparse_pruning {}: {}: {}", pruning.groups[group].name,
                               pruning.describe(pruning.groups[group]), lines[group]);
  return lines;
}

SparseMasks::SparseMasks(const Context& context, const Mesh& mesh, const SparsePruning& pruning, const Model& model)
    : context_(context), mesh_(mesh), pruning_(pruning), model_(model) {
  for (const ChosenLayer& layer : pruned_layers(pruning_, model_)) {
    const Unit& unit = *model_.units()[layer.unit];
    if (unit.elsewhere()) continue;
    const int64_t bytes = ceil_div(unit.parameters()[layer.parameter].shape.numel(), int64_t{8});
    masks_.push_back({layer.unit, layer.parameter, pruning_.groups[layer.group].dense_ratio,
                      context_.zeros({bytes}, DType::u8, Category::parameters)});
  }
}

const Parameter& SparseMasks::parameter_of(const Masked& of) const {
  return model_.units()[of.unit]->parameters()[of.parameter];
}

void SparseMasks::make(Residency& residency) const {
  if (context_.memory->is_virtual()) return;
  for (size_t i = 0; i < masks_.size();) {
    const size_t unit = masks_[i].unit;
    residency.lease(unit);
    for (; i < masks_.size() && masks_[i].unit == unit; ++i) {
      const Parameter& parameter = parameter_of(masks_[i]);
      const Tensor segment = residency.whole({unit, parameter.segment});
      make(masks_[i], segment.flat(parameter.range.begin, parameter.range.end));
    }
    residency.release(unit, /*stays=*/false);
  }
}

void SparseMasks::make(const Masked& of, const Tensor& held) const {
  const Parameter& parameter = parameter_of(of);
  Placement shared = parameter.placement;
  std::erase_if(shared.cuts, [](const Cut& cut) { return cut.owner.has_value(); });
  const Tensor whole =
      shared.cuts.empty() ? held : without_last_cuts(context_, mesh_, shared, held.reshape(parameter.shape), 0);
  const Mask mask = whole_mask(context_.to_host<float>(whole), parameter.placement.global, of.dense_ratio);
  std::vector<uint8_t> bits(static_cast<size_t>(of.bits.numel()));
  const auto keep = [&](int64_t local, int64_t global) {
    if (mask[static_cast<size_t>(global)] != 0)
      bits[static_cast<size_t>(local / 8)] |= static_cast<uint8_t>(1U << (local % 8));
  };
  if (shared.cuts.empty())
    for (int64_t i = 0; i < held.numel(); ++i) keep(i, i);
  else
    for (const PartRun& run : PlacedTensor(shared, mesh_.grid()).held_by(mesh_.world().rank()).runs())
      for (int64_t i = 0; i < run.local.size(); ++i) keep(run.local.begin + i, run.global.begin + i);
  context_.upload<uint8_t>(bits, of.bits);
}

std::vector<ChangedWeight> SparseMasks::changes() const {
  std::vector<ChangedWeight> changes;
  for (const Masked& mask : masks_)
    changes.push_back(
        {mask.unit, mask.parameter, std::make_shared<const Masking>(pruning_.schedule_offset, mask.bits)});
  return changes;
}

void SparseMasks::clear_gradients(const Reducer& reducer, const Residency& residency, int64_t updates) const {
  if (updates < pruning_.schedule_offset && !context_.memory->is_virtual()) return;
  for (const Masked& mask : masks_) {
    const Parameter& parameter = parameter_of(mask);
    if (!parameter.trainable) continue;
    const SegmentIndex at{mask.unit, parameter.segment};
    const Tensor gradients = reducer.reduced(at);
    const Partition& partition = reducer.partition(at);
    const Interval held = gradients.numel() == partition.padded() ? Interval{0, partition.padded()}
                                                                  : partition.owned(residency.ranks(at).rank());
    const Interval part = intersect(held, parameter.range);
    if (part.size() <= 0) continue;
    const Tensor values = gradients.flat(part.begin - held.begin, part.end - held.begin);
    context_.run(KeepMasked{.bits = mask.bits, .x = values, .y = values, .first = part.begin - parameter.range.begin});
  }
}

std::vector<RankLocalTensor> SparseMasks::tensors() const {
  std::vector<RankLocalTensor> all;
  for (const Masked& mask : masks_) all.push_back({"sparse_mask/" + parameter_of(mask).name, mask.bits});
  return all;
}

}  // namespace nought
