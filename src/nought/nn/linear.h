// Linear: a product with a weight, or with several that lie side by side.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/functions.h"

namespace nought {

/// y = x W + b. Several adjacent parameters may form the weight (q, k and v as one product): give one name and one
/// output size for each.
class Linear {
 public:
  struct Options {
    int64_t in = 0;
    std::vector<int64_t> out;        // one per name
    std::vector<std::string> names;  // "...q_proj"; ".weight" and ".bias" are added
    bool bias = false;
    WeightLayout layout = WeightLayout::out_in;
    double std = 0.02;
    std::shared_ptr<Fp8Recipe> fp8 = {};  // rounds the factors of its products
  };
  Linear() = default;
  Linear(Unit& unit, const Options& options);
  Var operator()(Tape& tape, const Var& x) const { return linear(tape, x, weight_, bias_, layout_, fp8_); }

 private:
  ParameterView weight_, bias_;
  WeightLayout layout_ = WeightLayout::out_in;
  Fp8Layer fp8_;
};

}  // namespace nought
