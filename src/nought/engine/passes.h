// Passes: the micro-batches of a schedule while it runs: their passes through the chunks of this rank, and the messages
// between the chunks.
//
// Design goals: what is received is asked for while the pass before computes, so that it is there when it is needed.
// What is sent is not copied. A pass waits for it only where the receiver is further behind than the schedule expects
// (message_room() of engine/pipeline_schedules.h). So how much is alive depends on the schedule alone, never on the
// wire. Non-goals: deciding the order (StepSchedule does).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/engine/step_schedule.h"
#include "nought/zero/micro_batch.h"

namespace nought {

class Passes {
 public:
  struct Options {
    double gradient_scale = 1;         // multiplies the gradients of the losses
    const Context* context = nullptr;  // computes; null: the model's
    Tensor loss_sum = {};              // f64: the losses that this rank computes are added to it; or undefined
    /// Where in it, of each micro-batch; empty: all to the first.
    std::vector<int64_t> loss_places = {};
  };
  /// All of these outlive it, but for the options. Error unless the schedule is for as many chunks as the model has.
  Passes(ShardedModel& model, const StepSchedule& schedule, std::span<const Batch> batches, const Options& options);

  /// Runs the instruction at this place of the schedule, which has a micro-batch. Places rise from call to call.
  void run(size_t place);
  /// The order in which the passes of Units come, for prefetches.
  std::vector<UnitPass> order() const;

 private:
  /// What comes to a chunk, and what it has made.
  struct Message {
    Tensor values;
    Event arrival;
  };
  struct ChunkState {
    Message x, d_result;
    Tensor result, d_x;  // until they are sent, or given to another chunk of this rank
  };
  /// What is on its way to another rank.
  struct Sent {
    Tensor values;
    Event event;
  };
  ChunkState& state_of(const Instruction& at);
  MicroBatch& micro_batch_of(const Instruction& at);
  const Chunk& chunk_of(const Instruction& at) const { return chunks_[static_cast<size_t>(at.chunk)]; }
  /// Begins what is received up to the pass behind the one at `place`.
  void receive_ahead(size_t place);
  void receive(const Instruction& at);
  void send(const Instruction& at);
  /// Waits until no more than so many messages to a rank are under way.
  void await_sent(int to, size_t left);
  /// "activation 3": what a message is, for flight records and traces.
  std::string name_of(const Instruction& at) const;
  /// The rank's timeline, where it is to have the passes of a pipeline's step; else null.
  Timeline* timeline_of(const Instruction& at) const;
  void forward(const Instruction& at);
  void backward(const Instruction& at);
  void form_weight_gradients(const Instruction& at);
  /// Waits for a message and takes it.
  Tensor take(Message& message, int from);

  ShardedModel& model_;
  const StepSchedule& schedule_;
  std::span<const Batch> batches_;
  Options options_;
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<MicroBatch>> micro_batches_;  // those in flight
  std::vector<ChunkState> states_;                          // by micro-batch, then chunk
  size_t received_ = 0;                                     // up to this place all that is received has begun
  std::map<int, std::deque<Sent>> sent_;                    // by receiver
};

}  // namespace nought
