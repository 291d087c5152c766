// StepSchedule: a training step as a list of instructions, which one executor runs (Engine).
//
// Design goals: a schedule is made by a pure function, so that it is tested without a model or communication; whatever
// must be known before it runs (which micro-batch is reduced last, how many are alive at once) is read from the list.
// Non-goals: deciding when to overlap communication; that is the work of prefetches and reductions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nought {

/// What an instruction does. The first three have a micro-batch.
enum class Action : uint8_t {
  forward,           // its loss; with the backward pass to come, what that needs is kept
  backward,          // walks back
  weight_gradients,  // forms the gradients that its backward pass left: then backward does not
  reduce,            // ends the reductions; loss and norm are those of all ranks from here on
  update,            // the optimizer; or forgets gradients that are not finite
};

constexpr bool has_micro_batch(Action action) { return action != Action::reduce && action != Action::update; }

struct Instruction {
  Action action = Action::forward;
  int64_t micro_batch = 0;
  bool operator==(const Instruction&) const = default;
};

class StepSchedule {
 public:
  /// Error unless it can run: micro-batches are numbered from 0; of each there is one forward, at most one backward
  /// behind it and at most one weight_gradients behind that; reduce needs all backward passes and comes behind them,
  /// update comes last, behind reduce.
  explicit StepSchedule(std::vector<Instruction> instructions);

  const std::vector<Instruction>& instructions() const { return instructions_; }
  int64_t micro_batches() const { return static_cast<int64_t>(uses_.size()); }
  /// True if the micro-batch is walked back, and so its forward pass is recorded.
  bool walks_back(int64_t micro_batch) const { return use_of(micro_batch).backward >= 0; }
  /// True if its weight gradients are formed by an instruction of their own.
  bool defers(int64_t micro_batch) const { return use_of(micro_batch).weight_gradients >= 0; }
  /// The place of the instruction after which nothing is kept of the micro-batch.
  int64_t end_of(int64_t micro_batch) const { return use_of(micro_batch).end(); }
  /// The micro-batch whose gradients are final last.
  int64_t last() const { return last_; }
  /// The most micro-batches that are alive at once: begun, and not at their end.
  int64_t in_flight() const;
  /// "F0 F1 B0 W0 B1 W1 reduce update"
  std::string str() const;

 private:
  /// The places of a micro-batch's instructions; -1: it has none.
  struct Use {
    int64_t forward = -1, backward = -1, weight_gradients = -1;
    int64_t end() const { return std::max({forward, backward, weight_gradients}); }
  };
  const Use& use_of(int64_t micro_batch) const { return uses_.at(static_cast<size_t>(micro_batch)); }
  bool all_walked_back() const;
  /// Notes the place of a micro-batch's instruction. False if it cannot come behind those that were noted.
  bool note(const Instruction& instruction, int64_t place);

  std::vector<Instruction> instructions_;
  std::vector<Use> uses_;
  int64_t last_ = 0;
};

/// The schedule of a step of so many micro-batches.
using MakeSchedule = std::function<StepSchedule(int64_t micro_batches)>;

/// One pipeline stage, one micro-batch after another: F0 B0 F1 B1 reduce update.
StepSchedule plain_schedule(int64_t micro_batches);
/// Losses alone: F0 F1.
StepSchedule evaluation_schedule(int64_t micro_batches);

}  // namespace nought
