// AnswerPacking: how the sequences of a step are spread over ranks and micro-batches by their lengths.
//
// They are spread over ranks and as few micro-batches as their tokens need, the longest first, each to where there are
// fewest tokens, so that none is torn and short ones share a row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/data/sampler.h"

namespace nought {

class AnswerPacking {
 public:
  /// Sequences by their place in a list, for each part: BatchLayout::part().
  using Parts = std::vector<std::vector<int64_t>>;

  /// whole_accumulation: every step has all its micro-batches, as pipelines need them.
  AnswerPacking(const BatchLayout& layout, bool whole_accumulation)
      : layout_(layout), whole_accumulation_(whole_accumulation) {}

  /// Over as few micro-batches as fit, `tokens` each. most: gets the tokens of the longest part.
  Parts pack(std::span<const int64_t> lengths, int64_t tokens, int64_t& most) const;
  /// The layout of a step that is spread so.
  BatchLayout layout_of(const Parts& parts) const;
  /// The places that `ranks` ranks from `first` on have.
  std::vector<int64_t> places_of(const Parts& parts, int first, int ranks) const;

 private:
  /// Over so many micro-batches of all ranks.
  Parts spread(std::span<const int64_t> lengths, int64_t micro_batches, int64_t& most) const;

  BatchLayout layout_;
  bool whole_accumulation_;
};

}  // namespace nought
