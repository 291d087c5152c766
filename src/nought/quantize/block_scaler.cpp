#include "nought/quantize/block_scaler.h"

#include <cmath>
#include <set>

#include "nought/quantize/input_scales.h"

namespace nought {

BlockScaler::BlockScaler(const ModelSource& source, const Context& context, LoadedUnits& units, const Section& block,
                         CalibrationRows& rows, Scales scales)
    : source_(source), context_(context), units_(units), block_(block), rows_(rows), scales_(std::move(scales)) {}

bool BlockScaler::scale(const Fold& fold, const ProductInputs& inputs) {
  std::set<InputMoments*> moments;
  std::vector<Tensor> matrices;
  for (const size_t index : fold.matrices) {
    if (InputMoments* each = inputs.of(index)) moments.insert(each);
    matrices.push_back(matrix(index));
  }
  if (moments.empty()) return true;  // an expert to which no token came stays as it is
  const InputMoments& any = **moments.begin();
  require_finite(any, block_.unit->parameters()[fold.matrices.front()].name);
  const std::vector<float> scales = scales_(matrices, any, fold.source);
  const std::vector<float> before = result();
  AppliedFold applied(
      fold, scales, [&](size_t index) { return matrix(index); },
      [&](size_t index, const Tensor& exact) { return as_stored(index, exact); });
  if (!computes_as_before(before)) {
    applied.undo();
    return false;
  }
  for (InputMoments* each : moments) divide_inputs(*each, applied.of_columns());
  return true;
}

Tensor BlockScaler::matrix(size_t parameter) {
  return units_.matrix_of(*block_.unit, block_.unit->parameters()[parameter]);
}

Tensor BlockScaler::as_stored(size_t parameter, const Tensor& exact) const {
  const Tensor file = context_.empty(exact.shape(), source_.dtype_of(block_.unit->parameters()[parameter]));
  const Tensor back = context_.empty(exact.shape(), DType::f32);
  context_.run(Cast{.x = exact, .y = file});
  context_.run(Cast{.x = file, .y = back});
  return back;
}

std::vector<float> BlockScaler::result() { return rows_.result(block_, context_, 0).value.to_vector<float>(); }

/// Compares what the block adds to its input, of which rounding may change a thousandth.
bool BlockScaler::computes_as_before(const std::vector<float>& before) {
  constexpr double kRounding = 1e-3;
  const std::vector<float> input = rows_.hidden(0).to_vector<float>(), after = result();
  double added = 0, changed = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    added += std::pow(static_cast<double>(before[i]) - input[i], 2);
    changed += std::pow(static_cast<double>(after[i]) - before[i], 2);
  }
  return changed <= kRounding * kRounding * added;
}

}  // namespace nought
