// What a head that scores sequences does with hidden states: it mixes rows, and its layers end in a tanh.
#pragma once

#include "nought/autograd/tape.h"

namespace nought {

/// y = factors x: [rows, hidden]. factors: [rows, tokens], dtype of x; they are constants.
Var mix_rows(Tape& tape, const Tensor& factors, const Var& x);
Var tanh(Tape& tape, const Var& x);

}  // namespace nought
