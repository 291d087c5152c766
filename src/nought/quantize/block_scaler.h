// BlockScaler: multiplies columns of a block's matrices by scales, and divides what makes their inputs, where that
// keeps what the block computes.
#pragma once

#include <functional>

#include "nought/quantize/calibration_rows.h"
#include "nought/quantize/folds.h"
#include "nought/quantize/loaded_units.h"
#include "nought/weights/model_source.h"

namespace nought {

class BlockScaler {
 public:
  /// One scale for each source of the columns of weights that have one input.
  using Scales = std::function<std::vector<float>(std::span<const Tensor> weights, const InputMoments& inputs,
                                                  std::span<const int64_t> source)>;
  /// The block is held, and the rows stand before it. All outlive it.
  BlockScaler(const ModelSource& source, const Context& context, LoadedUnits& units, const Section& block,
              CalibrationRows& rows, Scales scales);

  /// inputs: the sums of the fold's matrices, which become those of the divided inputs. Returns false if the block
  /// would have computed something else: then all is as it was. Error that names a matrix whose inputs are not finite.
  bool scale(const Fold& fold, const ProductInputs& inputs);

 private:
  Tensor matrix(size_t parameter);
  Tensor as_stored(size_t parameter, const Tensor& exact) const;
  std::vector<float> result();
  bool computes_as_before(const std::vector<float>& before);

  const ModelSource& source_;
  const Context& context_;
  LoadedUnits& units_;
  const Section& block_;
  CalibrationRows& rows_;
  Scales scales_;
};

}  // namespace nought
