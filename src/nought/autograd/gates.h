// Differentiable gates, and parts of rows that heads have in turn.
#pragma once

#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

/// x * sigmoid(gate), or x * silu(gate).
Var gate(Tape& tape, const Var& x, const Var& gate, GateKind kind);

/// `count` times `width` columns of each row from `begin` on, `stride` columns apart.
struct HeadColumns {
  int64_t begin = 0, count = 1, width = 0, stride = 0;
};
/// These columns side by side, as a tensor of its own.
Var pick_columns(Tape& tape, const Var& x, const std::vector<HeadColumns>& parts);

/// x with rows of `width`.
Var with_rows_of(Tape& tape, const Var& x, int64_t width);

}  // namespace nought
