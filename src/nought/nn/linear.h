// Linear: multiplies by a weight, or by several adjacent weights in one product.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/functions.h"

namespace nought {

/// y = x W + b. Several parameters may form W, such as those of q, k and v, which one product then computes. Give one
/// name and one output size for each of them.
class Linear {
 public:
  struct Options {
    int64_t in = 0;                  // elements of a row of x
    std::vector<int64_t> out;        // elements of a row of y, for each name
    std::vector<std::string> names;  // "...q_proj"; ".weight" and ".bias" are added
    bool bias = false;
    WeightLayout layout = WeightLayout::out_in;
    double std = 0.02;                    // standard deviation of the initial weights
    std::shared_ptr<Fp8Recipe> fp8 = {};  // how the factors of its products are rounded to 8 bits; null: not at all
  };
  Linear() = default;
  Linear(Unit& unit, const Options& options);
  /// x: [tokens, in]. Result: [tokens, sum of out].
  Var operator()(Tape& tape, const Var& x) const { return linear(tape, x, weight_, bias_, layout_, fp8_); }

 private:
  ParameterView weight_, bias_;
  WeightLayout layout_ = WeightLayout::out_in;
  Fp8Layer fp8_;
};

}  // namespace nought
