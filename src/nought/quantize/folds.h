// Folds: what of a block can be divided so that columns of its matrices can be multiplied, and the block computes what
// it did: the weight of a norm whose output they multiply, or rows of the matrix whose outputs they get.
//
// Design goals: no family is known here. A norm is found by where it writes; matrices one behind the other by their
// roles. Whether a fold keeps what the block computes is tried, not derived: the activation between two matrices, a
// clamp, or somebody else who reads the norm's output would undo it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "nought/models/config.h"
#include "nought/quantize/product_inputs.h"

namespace nought {

struct Fold {
  std::vector<size_t> matrices = {};  // parameters whose columns are multiplied; one input for all
  std::vector<size_t> divided = {};   // the norm's weight, or the matrix before; then the bias, if it has one
  bool by_norm = false;
  double offset = 0;                 // added to a norm's weight
  int64_t first_row = 0;             // the first that is divided of the matrix before, and of its bias
  std::vector<int64_t> source = {};  // for each column the value of the norm, or the row from first_row on
};

/// The folds of block `layer`, whose products were seen. becomes_codes: only such matrices change.
std::vector<Fold> folds_of(const ModelConfig& config, int64_t layer, const Unit& unit, const ProductInputs& inputs,
                           const std::function<bool(const Parameter&)>& becomes_codes);

/// Divides and multiplies the values of a Unit, until it is undone.
class AppliedFold {
 public:
  /// values: [rows, columns] or flat f32 of a parameter. stored: what a dense parameter is in the folder that is
  /// written. scales: one for each source.
  AppliedFold(const Fold& fold, std::span<const float> scales, const std::function<Tensor(size_t parameter)>& values,
              const std::function<Tensor(size_t parameter, const Tensor&)>& stored);
  void undo();
  /// What each column was multiplied by: as a norm's value became one that the folder holds.
  const std::vector<float>& of_columns() const { return of_columns_; }

 private:
  struct Kept {
    Tensor now;
    std::vector<float> before;
  };
  Tensor keep(const Tensor& values);

  std::vector<Kept> kept_;
  std::vector<float> of_columns_;
};

}  // namespace nought
