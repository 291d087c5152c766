// StepSchedule: a training step of one rank as a list of instructions, which one executor runs (Engine).
//
// Design goals: a schedule is made by a pure function, so that it is tested without a model or communication; whatever
// must be known before it runs (which micro-batch is reduced last, how many are alive at once) is read from the list.
// Non-goals: deciding when to overlap collectives; that is the work of prefetches and reductions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nought {

/// What an instruction does. All but the last two have a micro-batch and a chunk: the part of this rank's model that it
/// runs. The four that communicate only begin a transfer: the pass that needs what is received waits for it, and no
/// pass waits for what is sent.
enum class Action : uint8_t {
  forward,             // makes a loss or an activation; with the backward pass to come, what that needs is kept
  backward,            // walks back
  weight_gradients,    // forms the gradients that its backward pass left: then backward does not
  receive_activation,  // what the forward pass reads, from the stage before
  send_activation,     // what the forward pass made, to the stage behind
  receive_gradient,    // what the backward pass reads, from the stage behind
  send_gradient,       // what the backward pass made, to the stage before
  reduce,              // ends the reductions; loss and norm are those of all ranks from here on
  update,              // the optimizer; or forgets gradients that are not finite
};

constexpr bool has_micro_batch(Action action) { return action != Action::reduce && action != Action::update; }
constexpr bool receives(Action action) {
  return action == Action::receive_activation || action == Action::receive_gradient;
}
constexpr bool sends(Action action) { return action == Action::send_activation || action == Action::send_gradient; }
/// True if it is a part of the model that runs: the first three.
constexpr bool is_pass(Action action) { return has_micro_batch(action) && !receives(action) && !sends(action); }

struct Instruction {
  Action action = Action::forward;
  int64_t micro_batch = 0;
  int64_t chunk = 0;
  bool operator==(const Instruction&) const = default;
  /// "F0" with the only chunk of a rank, "F0.1" with the second of several. B: backward, W: weight gradients; SF, RF:
  /// sends, receives an activation; SB, RB: a gradient.
  std::string str(int64_t chunks) const;
};

class StepSchedule {
 public:
  /// Error unless it can run. Micro-batches and chunks are numbered from 0, and each micro-batch runs through every
  /// chunk: one forward, behind that of the chunk before; at most one backward, behind its forward and the backward of
  /// the next chunk; at most one weight_gradients behind that. What is received comes before the pass that reads it,
  /// what is sent behind the pass that made it, each at most once. reduce needs all backward passes and comes behind
  /// them, update comes last, behind reduce. message_room: see there.
  explicit StepSchedule(std::vector<Instruction> instructions, int64_t message_room = 0);

  const std::vector<Instruction>& instructions() const { return instructions_; }
  int64_t micro_batches() const { return micro_batches_; }
  /// The chunks of this rank's model: its pipeline stages.
  int64_t chunks() const { return chunks_; }
  /// True if the chunk walks the micro-batch back, and so its forward pass is recorded.
  bool walks_back(int64_t micro_batch, int64_t chunk = 0) const { return has(Action::backward, micro_batch, chunk); }
  /// True if its weight gradients are formed by an instruction of their own.
  bool defers(int64_t micro_batch, int64_t chunk = 0) const {
    return has(Action::weight_gradients, micro_batch, chunk);
  }
  /// True if the schedule has this instruction: whether an activation is received from, or a gradient sent to, another
  /// rank, and not another chunk of this one.
  bool has(Action action, int64_t micro_batch, int64_t chunk = 0) const {
    return use_of(micro_batch, chunk).place(action) >= 0;
  }
  /// The place of the instruction after which the chunk keeps nothing of the micro-batch, and that after which none
  /// does.
  int64_t end_of(int64_t micro_batch, int64_t chunk) const { return use_of(micro_batch, chunk).end(); }
  int64_t end_of(int64_t micro_batch) const;
  /// The micro-batch whose gradients of the chunk are final last.
  int64_t last(int64_t chunk = 0) const { return last_.at(static_cast<size_t>(chunk)); }
  /// So many messages to one rank may wait, beside the one that is sent, until that rank begins to receive them.
  int64_t message_room() const { return message_room_; }
  /// The most micro-batches of which the chunk keeps something at once: begun there, and not at their end.
  int64_t in_flight(int64_t chunk) const;
  /// "F0 F1 B0 W0 B1 W1 reduce update"
  std::string str() const;

 private:
  /// The places of the instructions of a micro-batch and a chunk, by action; -1: it has none.
  struct Use {
    std::array<int64_t, static_cast<size_t>(Action::reduce)> places;
    Use() { places.fill(-1); }
    int64_t place(Action action) const { return places[static_cast<size_t>(action)]; }
    int64_t end() const;
  };
  void count();
  size_t index(int64_t micro_batch, int64_t chunk) const;
  const Use& use_of(int64_t micro_batch, int64_t chunk) const { return uses_.at(index(micro_batch, chunk)); }
  bool all_walked_back() const;
  /// True if it can come behind those that were noted.
  bool fits(const Instruction& instruction) const;
  void check_whole() const;

  std::vector<Instruction> instructions_;
  int64_t micro_batches_ = 0, chunks_ = 1, message_room_ = 0;
  std::vector<Use> uses_;  // by micro-batch, then chunk
  std::vector<int64_t> last_;
};

/// The schedule of a step of so many micro-batches.
using MakeSchedule = std::function<StepSchedule(int64_t micro_batches)>;

/// One pipeline stage, one micro-batch after another: F0 B0 F1 B1 reduce update.
StepSchedule plain_schedule(int64_t micro_batches);
/// Losses alone: F0 F1.
StepSchedule evaluation_schedule(int64_t micro_batches);

/// What an Engine runs: its steps, and its evaluations.
struct Schedules {
  MakeSchedule step = plain_schedule, evaluation = evaluation_schedule;

  Schedules() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): where no pipeline is, evaluations need no schedule of their own
  Schedules(MakeSchedule steps) : step(std::move(steps)) {}
  Schedules(MakeSchedule steps, MakeSchedule evaluations)
      : step(std::move(steps)), evaluation(std::move(evaluations)) {}
};

}  // namespace nought
