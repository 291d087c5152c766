// LiveUnits: which Units stay whole from one of their passes to the next, where parameters are sharded.
//
// A Unit is gathered for each of its passes: with accumulation, twice in every micro-batch of a step. The smallest
// Units, as many as LiveParameters has room for, stay whole as long as the expected order has another pass that reads
// them. So nothing stays when a step or an evaluation ends, and no update makes what stays old. The limits are those of
// DeepSpeed's stage3_max_live_parameters and stage3_max_reuse_distance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nought/autograd/unit.h"
#include "nought/nn/section.h"
#include "nought/zero/live_parameters.h"

namespace nought {

class LiveUnits {
 public:
  /// elements: what a lease brings of each Unit; 0: nothing, as this rank has all of it.
  LiveUnits(const std::vector<std::unique_ptr<Unit>>& units, std::vector<int64_t> elements,
            const LiveParameters& limits);

  /// Passes come in this order from now on. Empty: it is not known, and nothing stays.
  void expect(std::span<const UnitPass> order);
  /// Whether the Unit stays: it is one of the chosen, and the pass at `place` of the order, or one behind it, reads it.
  bool stays(size_t unit, size_t place) const;

  /// What leases bring of each Unit of which they bring something, rising. The first ones are chosen.
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  const std::vector<std::unique_ptr<Unit>>& units_;
  std::vector<int64_t> elements_;
  LiveParameters limits_;
  std::vector<int64_t> sizes_;
  std::vector<bool> chosen_;               // by Unit
  std::vector<std::vector<size_t>> uses_;  // by Unit: the places of the passes that read it, rising
  std::vector<int64_t> read_before_;       // by place: the elements that the passes before it read
};

/// How many Units of these sizes, rising, stay if so many elements have room; and how many elements these have.
struct LiveCount {
  size_t units = 0;
  int64_t elements = 0;
};
LiveCount count_live(std::span<const int64_t> sizes, int64_t most);

}  // namespace nought
