// The low-rank product that an adapter adds to a linear layer (LoRA, arXiv 2106.09685).
#pragma once

#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

/// What some columns of a layer's result get: scale * B of its rows of A.
struct LowRankColumns {
  ParameterView b;   // [end - begin, rank]
  int64_t rank = 0;  // so many rows of A are its own; those of the columns before lie before them
  int64_t begin = 0, end = 0;
  double scale = 1;
};

/// Dropout of what A reads.
struct LowRankDropout {
  double probability = 0;
  uint64_t key = 0;
  int64_t first_column = 0;  // where the columns of x begin among those of all ranks
  Tensor rows = {};          // see Dropout; undefined: nothing is dropped

  bool active() const { return probability > 0 && rows.defined(); }
  /// Writes, or adds, what is left of x.
  void run(const Context& context, const Tensor& x, const GradSink& y) const;
};

/// y[:, columns] += scale * (x A^T) B^T, in place of y, whose producer does not need it. x: [tokens, in], y: [tokens,
/// out]; a: [sum of ranks, in]. One product reads x for all columns, which so read the same of it where some is
/// dropped. The gradient of y is that of the result.
Var add_low_rank(Tape& tape, const Var& y, const Var& x, const ParameterView& a,
                 const std::vector<LowRankColumns>& columns, const LowRankDropout& dropout = {});

/// y[:, begin to end] += scale * bias, in place of y. bias: [end - begin].
Var add_bias(Tape& tape, const Var& y, const ParameterView& bias, int64_t begin, int64_t end, double scale = 1);

}  // namespace nought
