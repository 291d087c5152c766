// UpdateLane: when and where updates are made that are not made at once, by the rank's own thread: segment by segment
// overlapped with the backward pass, one step late with the passes of the step between, or by a server of asynchronous
// ranks. It has the thread that makes them, and the gradients that were set aside for them. It never talks to other
// ranks.
//
// Overlapped with the backward pass, segments whose gradients are final are updated while earlier Units' are still
// computed. Where something global stands before it (a norm that clips, a loss scale), this is a guess that it changes
// nothing: the update writes states beside those of before, and keeps parameters that have no masters (OffloadOptions::
// undo). A right guess takes what was written; a wrong one leaves it, and parameters become those of before. So the
// bits are those of an update afterwards.
//
// One step late: theta(t + 1) = theta(t) - A(g(theta(t - 1))) (ZeRO-Offload's one-step delayed parameter update).
// Between two steps an update is pending, but nothing of it has begun: masters and states are those of before, and its
// gradients lie beside them. So a checkpoint holds it as it is, and saving changes nothing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"
#include "nought/zero/state_table.h"

namespace nought {

/// The numbers of an update that begins before all gradients are there.
struct EarlyUpdate {
  double lr = 0, gradient_scale = 1;
  double max_norm = 0;  // > 0: a larger norm of the scaled gradients makes these numbers wrong
};

/// An update whose gradients are there, and which was not applied yet.
struct PendingUpdate {
  double lr = 0, gradient_scale = 1;
};

class UpdateLane {
 public:
  using Update = std::function<void(const TileView& tile, const TrainedPiece& piece, double lr, double gradient_scale)>;
  /// update: updates a piece, on any thread. What is referred to stays.
  UpdateLane(const Context& context, const Mesh& mesh, Residency& residency, Reducer& reducer, StateTable& table,
             Update update);

  // Each as ShardedOptimizer has it; number: that of the update, from 1 on.
  void begin_early(const EarlyUpdate& update, int64_t number);
  /// Begins to update the segments whose gradients have become final, on a thread of its own; nothing without
  /// begin_early().
  void update_early();
  bool abandon_early();
  /// Waits for what was begun, and ends nothing.
  void await_early() { done_.wait(); }
  /// Waits for what was begun. The places of the segments that are updated with these numbers; the others are as
  /// before.
  std::vector<size_t> finish_early(double lr, double gradient_scale);

  void delay(double lr, double gradient_scale);
  void start(int64_t number);
  bool complete(int64_t number);
  const std::optional<PendingUpdate>& pending() const { return pending_; }
  void forget_pending() { pending_.reset(); }
  void load_pending(const StateSource& source, const PendingUpdate& pending);
  /// Waits until the gradients that were set aside are there.
  void await_gradients() const { arrived_.wait(); }

  /// Servers (zero/rotating_servers.h): from now on updates are made by submit(), of SegmentStates::held, to
  /// SegmentStates::next.
  void begin_serving();
  void end_serving();
  Event submit(std::function<void()> work) { return worker_->submit(std::move(work)); }
  /// What the thread computes with.
  const Context& context() const { return worker_context_; }
  /// As ShardedOptimizer::sums_of_squares(), of what is held, into f64 [units]; `room`: f64 [1].
  void sum_held_squares(const Tensor& sums, const Tensor& room) const;
  void update_asynchronously(double lr, double gradient_scale, int64_t number);

  /// Seconds in which the rank's own thread waited.
  double waited() const { return waited_; }

 private:
  /// An update overlapped with the backward pass.
  struct Early {
    enum class Progress : uint8_t { none, some, all };
    EarlyUpdate update = {};
    std::vector<bool> begun = {};         // by segment: it is updated, or waits for update()
    std::vector<size_t> segments = {};    // those that were given to the worker
    std::vector<Progress> progress = {};  // the worker's, by segment
    Tensor square = {};                   // f64 [1]
    double sum = 0;                       // the worker's, of squares
    std::atomic<bool> stopped = false;
    bool changed = false;  // the worker's: parameters or states
    bool exceeds() const;
  };
  void make_worker();
  /// Waits for what the worker was given.
  void wait_overlapped();
  void update_early(size_t segment, StateTable::Walk& walk) const;
  void update_early(const TileView& tile) const;
  /// Waits, and ends the overlap.
  std::unique_ptr<Early> end_early();
  void prepare_delay();
  void make_room_for_delay();
  void drop_room_for_delay();

  Context context_;
  Mesh mesh_;
  Residency& residency_;
  Reducer& reducer_;
  StateTable& table_;
  Update update_;
  double waited_ = 0;
  std::unique_ptr<Early> early_;
  std::optional<PendingUpdate> pending_;
  Event arrived_;  // the gradients that were set aside are there
  Event done_;     // what the worker was given last
  Context worker_context_;
  std::unique_ptr<StateTable::Walk> asynchronous_;  // null unless it serves
  std::unique_ptr<Stream> worker_;  // null until there is work for it; the last member: its thread uses the others
};

}  // namespace nought
