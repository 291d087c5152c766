// Linear: multiplies by a weight, or by several adjacent weights in one product.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nought/autograd/functions.h"
#include "nought/nn/adapter_products.h"
#include "nought/nn/linear_cut.h"
#include "nought/parallel/token_slices.h"

namespace nought {

/// One of the tiles that the dimension which ranks cut is cut into before: each is a layer of its own, and y is their
/// outputs side by side, or the sum of theirs.
struct LinearTile {
  int index = 0, count = 1;
};

/// y = x W + b. Several parameters may form W, such as those of q, k and v, which one product then computes. Give one
/// name and one output size for each of them.
class Linear {
 public:
  struct Options {
    int64_t in = 0;                  // elements of a row of x, over all ranks
    std::vector<int64_t> out;        // elements of a row of y, for each name, over all ranks
    std::vector<std::string> names;  // "...q_proj"; ".weight" and ".bias" are added
    bool bias = false;
    WeightLayout layout = WeightLayout::out_in;
    double std = 0.02;                    // standard deviation of the initial weights
    std::shared_ptr<Fp8Recipe> fp8 = {};  // how the factors of its products are rounded to 8 bits; null: not at all
    TensorRanks ranks = {};
    LinearCut cut = LinearCut::none;
    TensorRanks slicing = {};         // LinearCut::none: x and y are slices of the tokens of so many ranks
    std::vector<int64_t> fused = {};  // LinearCut::outputs, one name: the outputs of the tensors that it joins
    LinearTile tile = {};             // of the outputs or inputs that are cut; `in` and `out` are those of all tiles
    Unit* bias_unit = nullptr;        // it has b; null: the Unit of W
    const ModelAdapter* adapter = nullptr;  // what it adds to layers of these names; null: nothing
  };
  Linear() = default;
  Linear(Unit& unit, const Options& options);
  /// x: [tokens, in]. Result: [tokens, sum of out]. With a cut, this rank's columns of the one that is cut; the other
  /// one may be this rank's slice of the tokens.
  Var operator()(Tape& tape, const Var& x, const TokenSlices& slices = {}) const;

  /// Its three steps, for a layer that runs the product by parts of the tokens: x as the ranks multiply it, the product
  /// of some rows of that, and y of the product of all rows.
  Var enter(Tape& tape, const Var& x, const TokenSlices& slices) const;
  Var multiply(Tape& tape, const Var& x) const;
  Var leave(Tape& tape, const Var& product, const TokenSlices& slices) const;
  /// True if a gradient of its parameters is wanted.
  bool trained() const {
    return weight_.trained() || bias_.trained() || adapters_.trained() ||
           std::any_of(biases_.begin(), biases_.end(), [](const ColumnsBias& each) { return each.bias.trained(); });
  }

 private:
  /// A bias of some columns, where an adapter trains one of several layers' alone.
  struct ColumnsBias {
    ParameterView bias;
    int64_t begin = 0, end = 0;
  };
  /// The sum of the ranks' products has the bias once.
  bool adds_bias() const { return cut_ != LinearCut::inputs || ranks_.rank() == 0; }

  ParameterView weight_, bias_;
  AdapterProducts adapters_;
  std::vector<ColumnsBias> biases_;  // instead of bias_
  WeightLayout layout_ = WeightLayout::out_in;
  Fp8Layer fp8_;
  TensorRanks ranks_;
  LinearCut cut_ = LinearCut::none;
};

}  // namespace nought
