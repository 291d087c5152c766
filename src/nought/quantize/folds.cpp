#include "nought/quantize/folds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "nought/models/names.h"
#include "nought/quantize/input_scales.h"

namespace nought {

namespace {

/// A matrix, and the one that makes its inputs.
struct Neighbours {
  std::string before, after;
  bool are_heads = false;  // values, and what attention makes of them: heads of keys may be shared by several
};

std::vector<Neighbours> neighbours_of(const ModelConfig& config, int64_t layer) {
  const WeightNames::Layer names = WeightNames::of(config).layer(layer);
  std::vector<Neighbours> all;
  if (!names.qkv.empty()) all.push_back({names.qkv.back(), names.attention_out, true});
  if (!names.up.empty()) all.push_back({names.up.back(), names.down});
  if (!config.experts) return all;
  for (int64_t expert = 0; expert < config.experts->num_experts; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", names.experts, expert);
    all.push_back({prefix + names.expert_up, prefix + names.expert_down});
  }
  all.push_back({names.shared_expert + "up_proj", names.shared_expert + "down_proj"});
  return all;
}

std::vector<int64_t> one_to_one(int64_t columns) {
  std::vector<int64_t> source(static_cast<size_t>(columns));
  std::iota(source.begin(), source.end(), 0);
  return source;
}

class Finder {
 public:
  Finder(const ModelConfig& config, const Unit& unit, const std::function<bool(const Parameter&)>& becomes_codes)
      : config_(config), unit_(unit), becomes_codes_(becomes_codes) {}

  /// Behind one norm. Nothing where a matrix stays dense: it would be rounded to what the folder has of it.
  std::optional<Fold> behind(const ProductInputs::Norm& norm, const ProductInputs& inputs) const {
    Fold fold{.divided = {norm.weight}, .by_norm = true, .offset = norm.offset};
    if (norm.bias) fold.divided.push_back(*norm.bias);
    fold.source = one_to_one(parameter(norm.weight).placement.global.numel());
    for (const ProductInputs::Product& product : inputs.seen()) {
      if (inputs.norm_before(product) != norm) continue;
      for (size_t i = product.first; i <= product.last; ++i) {
        if (!becomes_codes_(parameter(i)) || columns_of(i) != std::ssize(fold.source)) return std::nullopt;
        fold.matrices.push_back(i);
      }
    }
    return fold;
  }

  std::optional<Fold> between(const Neighbours& neighbours) const {
    const std::optional<size_t> before = find(neighbours.before + ".weight"),
                                after = find(neighbours.after + ".weight");
    if (!before || !after || !becomes_codes_(parameter(*before)) || !becomes_codes_(parameter(*after)))
      return std::nullopt;
    Fold fold{.matrices = {*after}, .divided = {*before}};
    if (const auto bias = find(neighbours.before + ".bias")) fold.divided.push_back(*bias);
    fold.source = neighbours.are_heads ? values_of_heads(columns_of(*after)) : one_to_one(columns_of(*after));
    if (fold.source.empty()) return std::nullopt;
    // What comes last is v of a joined q, k and v, and "up" of a joined gate and up.
    fold.first_row = parameter(*before).placement.global[0] - (fold.source.back() + 1);
    if (fold.first_row < 0) return std::nullopt;
    return fold;
  }

 private:
  /// The value that each column of what attention makes comes from.
  std::vector<int64_t> values_of_heads(int64_t columns) const {
    const int64_t dim = config_.head_dim, heads = config_.num_heads, shared = config_.num_kv_heads;
    std::vector<int64_t> source;
    if (dim <= 0 || shared <= 0 || columns != heads * dim || heads % shared != 0) return source;
    for (int64_t column = 0; column < columns; ++column)
      source.push_back(column / dim / (heads / shared) * dim + column % dim);
    return source;
  }
  const Parameter& parameter(size_t index) const { return unit_.parameters()[index]; }
  int64_t columns_of(size_t index) const { return parameter(index).placement.global[-1]; }
  std::optional<size_t> find(const std::string& name) const {
    for (size_t i = 0; i < unit_.parameters().size(); ++i)
      if (parameter(i).name == name) return i;
    return std::nullopt;
  }

  const ModelConfig& config_;
  const Unit& unit_;
  const std::function<bool(const Parameter&)>& becomes_codes_;
};

}  // namespace

std::vector<Fold> folds_of(const ModelConfig& config, int64_t layer, const Unit& unit, const ProductInputs& inputs,
                           const std::function<bool(const Parameter&)>& becomes_codes) {
  const Finder finder(config, unit, becomes_codes);
  std::vector<Fold> folds;
  std::vector<ProductInputs::Norm> norms;
  for (const ProductInputs::Product& product : inputs.seen()) {
    const std::optional<ProductInputs::Norm> norm = inputs.norm_before(product);
    if (!norm || std::find(norms.begin(), norms.end(), *norm) != norms.end()) continue;
    norms.push_back(*norm);
    if (std::optional<Fold> fold = finder.behind(*norm, inputs)) folds.push_back(std::move(*fold));
  }
  for (const Neighbours& neighbours : neighbours_of(config, layer))
    if (std::optional<Fold> fold = finder.between(neighbours)) folds.push_back(std::move(*fold));
  return folds;
}

Tensor AppliedFold::keep(const Tensor& values) {
  kept_.push_back({values, values.to_vector<float>()});
  return values;
}

AppliedFold::AppliedFold(const Fold& fold, std::span<const float> scales, const std::function<Tensor(size_t)>& values,
                         const std::function<Tensor(size_t, const Tensor&)>& stored) {
  std::vector<float> exact(scales.begin(), scales.end());
  const auto rows = std::ssize(exact);
  const auto offset = static_cast<float>(fold.offset);
  for (const size_t index : fold.divided) {
    const Tensor all = keep(values(index));
    const int64_t width = all.numel() / all.dim(0);
    float* const first = all.data<float>() + fold.first_row * width;
    const bool is_weight = index == fold.divided.front();
    const std::vector<float> before(first, first + rows * width);
    for (int64_t i = 0; i < rows * width; ++i) {
      const float shift = fold.by_norm && is_weight ? offset : 0;
      first[i] = (first[i] + shift) / exact[static_cast<size_t>(i / width)] - shift;
    }
    if (!fold.by_norm) continue;
    const Tensor as_stored = stored(index, all);
    if (is_weight)
      for (int64_t i = 0; i < rows; ++i) {
        // The columns make up for the rounding of the norm's weight.
        const float was = before[static_cast<size_t>(i)] + offset, now = as_stored.data<float>()[i] + offset;
        const bool kept = now != 0 && std::isfinite(was / now) && was / now > 0;
        exact[static_cast<size_t>(i)] = kept ? was / now : 1;
        first[i] = kept ? as_stored.data<float>()[i] : before[static_cast<size_t>(i)];
      }
  }
  for (const int64_t at : fold.source) of_columns_.push_back(exact[static_cast<size_t>(at)]);
  for (const size_t index : fold.matrices) scale_columns(keep(values(index)), of_columns_);
}

void AppliedFold::undo() {
  for (const Kept& each : kept_) std::copy(each.before.begin(), each.before.end(), each.now.data<float>());
}

}  // namespace nought
