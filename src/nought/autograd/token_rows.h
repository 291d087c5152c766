// TokenRows: trained rows in the place of those that a frozen table has of some tokens (peft's
// trainable_token_indices), for what looks tokens up and for the logits of a tied head. Nothing of the size of the
// table is copied.
#pragma once

#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

struct TokenRows {
  /// Neighbours in the table whose rows are neighbours, too.
  struct Run {
    int64_t row = 0;     // of the trained ones
    int64_t column = 0;  // the row of the table, a column of logits
    int64_t count = 0;
  };
  ParameterView rows;     // [tokens, width]
  std::vector<Run> runs;  // of the tokens whose logits this rank has, rising by their columns

  bool empty() const { return !rows.defined(); }
};

/// The runs of tokens within the part of a vocabulary that a rank holds. Their columns begin there.
std::vector<TokenRows::Run> runs_of(const std::vector<int32_t>& tokens, Interval held);

/// Writes the logits of these tokens, of x: [tokens, width], into their columns.
void put_token_logits(const Context& context, const Tensor& x, const TokenRows& of, const Tensor& logits);
/// Adds what the gradients of the logits mean for the trained rows, and for dx, which has what they mean by the table's
/// own rows. dx may be undefined.
void token_logits_backward(const Context& context, const Tensor& x, const Tensor& d_logits, const Weight& table,
                           const TokenRows& of, const GradSink& d_rows, const Tensor& dx);

}  // namespace nought
