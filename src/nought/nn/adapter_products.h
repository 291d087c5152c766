// AdapterProducts: what adapters add to the layers that one product computes: the model's own adapter to all rows, and
// each of several choices to the rows of a batch that have chosen it, in one product for all of them.
#pragma once

#include <vector>

#include "nought/nn/low_rank.h"

namespace nought {

class AdapterProducts {
 public:
  AdapterProducts() = default;
  /// Declares the factors of the adapter, and those of its choices, in the Unit.
  AdapterProducts(Unit& unit, const ModelAdapter& adapter, const LowRankProducts::Options& options);

  /// Whether nothing is added to any row of what the tape computes.
  bool add_nothing(const Tape& tape) const;
  bool trained() const { return own_.trained(); }
  /// The layers' own product y with what is added, in place of y.
  Var add_to(Tape& tape, const Var& y, const Var& x) const;
  /// See LowRankProducts.
  bool is_decomposed() const { return own_.is_decomposed(); }
  Var decomposed(Tape& tape, const Var& x, const WeightView& weight, const ParameterView& bias,
                 const Fp8Layer& fp8) const {
    return own_.decomposed(tape, x, weight, bias, fp8);
  }

 private:
  LowRankProducts own_;
  std::vector<LowRankProducts> choices_;  // where no choice adds to these layers, none
};

}  // namespace nought
