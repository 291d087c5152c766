// TokenDispatch: how rows of tokens come to the experts that were chosen for them, and results back to the tokens.
//
// Within one rank the rows are copied. Where ranks hold different experts (arXiv 2006.16668) each choice is one row
// that travels to the rank of its expert, and its result travels back. Nothing is padded on the way, and no row is
// dropped that group_by_expert() has kept: a capacity limits what an expert takes of the tokens of one rank.
//
// Design goals: an expert's rows lie in the order of (rank, place on that rank), so that no sum depends on timing; a
// rank without tokens, or whose experts nobody chose, takes part in every exchange. Non-goals: what experts compute.
#pragma once

#include <memory>
#include <vector>

#include "nought/autograd/moe.h"

namespace nought {

/// Cheap to copy. All ranks of the group make one together, and call the same functions in the same order.
class TokenDispatch {
 public:
  /// Every expert is here.
  TokenDispatch(ExpertRows rows);  // NOLINT(google-explicit-constructor): without other ranks there is no more to say
  /// `ranks` (Group::experts) hold equal parts of the experts, in their order. rows: what the tokens of this rank chose
  /// of all experts. The ranks tell each other how many rows come, and the host waits for that. Where memory is only
  /// counted, every rank is taken to choose as this one does: with the counts that GroupByExpert then has, balanced.
  /// codes: what rows_of_tokens() brings travels as 8-bit codes (EncodeWire); ShapeError unless rows have a multiple of
  /// 4 elements. What experts return travels as it is.
  TokenDispatch(const Context& context, const ExpertRows& rows, Communicator& ranks, bool codes = false);

  /// The block of each expert that this rank has, padding included.
  const std::vector<Interval>& blocks() const { return blocks_; }
  int64_t rows() const { return blocks_.empty() ? 0 : blocks_.back().end; }
  /// Room for values of each row, [rows(), width]. Where every expert is here it takes as much memory whatever was
  /// chosen, so that every step asks for the same blocks (tensor/arena.h).
  Tensor make_rows(const Context& context, int64_t width, DType dtype, Category category = Category::workspace) const;
  /// True if rows come from other ranks.
  bool exchanges() const { return exchange_ != nullptr; }

  /// The token of each row: [rows(), H], zeros for padding. x: [tokens, H].
  Tensor rows_of_tokens(const Context& context, const Tensor& x, Category category = Category::workspace) const;
  /// The value of each row's choice: [rows(), 1], zeros for padding. values: [tokens, top_k] of a float dtype.
  Tensor rows_of_choices(const Context& context, const Tensor& values) const;
  /// out[t] [+]= sum over its choices of weights * y[row of the choice]. y: [rows(), H], out: [tokens, H], weights:
  /// [tokens, top_k] f32 (f64 for f64), ones if undefined. A dropped choice gives nothing.
  void sum_to_tokens(const Context& context, const Tensor& y, const GradSink& out, const Tensor& weights = {}) const;
  /// out[t, s] [+]= y[row of the choice]. y: [rows(), 1], out: [tokens, top_k].
  void give_to_choices(const Context& context, const Tensor& y, const GradSink& out) const;

 private:
  struct Exchange;
  Tensor into_blocks(const Context& context, const Tensor& x, const Tensor& index, Category category) const;
  Tensor to_experts(const Context& context, const Tensor& x, const Tensor& index, Category category, bool codes) const;
  Tensor from_experts(const Context& context, const Tensor& y) const;

  // The rows that this rank's tokens have are those of the blocks, or those that are sent.
  Tensor token_, choice_;  // [rows] i32: each row's token, and its place in [tokens * top_k]; -1 for padding
  Tensor row_;             // [tokens, top_k] i32: the row of each choice; -1 if it is dropped
  std::vector<Interval> blocks_;
  int64_t most_ = 0;                          // rows() of whatever choices; 0: nothing bounds it but the ranks' tokens
  std::shared_ptr<const Exchange> exchange_;  // null: every expert is here
};

}  // namespace nought
