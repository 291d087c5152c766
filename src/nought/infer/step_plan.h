// StepPlan: what a rank that leads has the others compute in a step, as numbers, and how it gets to them.
//
// Only the first rank schedules and draws tokens. The others need to know which tokens go into which sequences of the
// cache, and what changed in the cache since the step before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/models/decoder.h"

namespace nought {

/// A change of the cache that computes nothing.
struct CacheChange {
  int64_t sequence = 0;
  int64_t from = -1;  // the sequence whose beginning it gets; -1: it keeps its own
  int64_t count = 0;  // how many tokens it has after that
  bool operator==(const CacheChange&) const = default;
};

struct StepPlan {
  enum class Work : int32_t {
    none,    // nothing: it says that the first rank is there
    logits,  // Decoder::next_logits()
    hidden,  // Decoder::next_hidden()
    end      // the others are dismissed
  };
  Work work = Work::none;
  std::vector<CacheChange> changes = {};  // before the work, in this order
  std::vector<NextTokens> next = {};

  std::vector<int32_t> words() const;
  /// The plan of words(), whose tokens lie in `words`. Error if it is none.
  static StepPlan read(std::span<const int32_t> words);
};

/// Sends plans from rank 0 to all others: each in one broadcast, and in a second one what a long prompt has beyond
/// kWordsAtOnce. Collective.
class StepPlans {
 public:
  static constexpr int64_t kWordsAtOnce = 1024;
  StepPlans(Communicator& ranks, const Context& context);
  /// On rank 0.
  void send(const StepPlan& plan);
  /// On the others. The plan is valid until the next call.
  StepPlan receive();

 private:
  Communicator& ranks_;
  Context context_;
  Tensor first_;  // the first words of a plan
  std::vector<int32_t> words_;
};

}  // namespace nought
