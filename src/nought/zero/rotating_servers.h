// RotatingServers: asynchronous data parallelism in which every rank is a worker, and the server of the parameters
// whose states it has.
//
// A rank pushes the gradients of its step to all servers and goes on. A thread that runs during its passes takes the
// gradients that others push to it, adds them in the order of the ranks, updates its interval, and hands it to all. So
// every link carries at most 2 Psi (N - 1) / N elements in a step, as in synchronous training, and no rank is a
// bottleneck.
//
// Staleness s: the gradients of step t are of parameters in which at most s earlier updates are missing. A rank waits
// only where it would begin a step with more; so ranks may be up to s steps apart. Which updates are missing is fixed
// (all from t - s on), whoever is slow: a run has the same bits every time, and with s = 0 those of synchronous
// training. Parameters that arrive early wait in a slot of their own until it is their turn.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/zero/sharded_model.h"

namespace nought {

class RotatingServers {
 public:
  /// group: all ranks of the model, for this alone; guard: another such one, which ends what waits if this rank fails.
  /// The model is at ZeRO stage 1 and keeps its gradients to itself (ShardedModel::Options::local_gradients).
  RotatingServers(ShardedModel& model, std::unique_ptr<Communicator> group, std::unique_ptr<Communicator> guard,
                  int64_t staleness, double gradient_factor = 1);
  ~RotatingServers();

  /// The model has been loaded; so many steps were made before.
  void begin(int64_t steps);

  /// What was completed: an update that all ranks' parameters have from now on.
  struct Completed {
    int64_t step = 0;
    double loss = 0, grad_norm = 0;  // of all ranks
    bool stop = false;               // a rank wanted to stop when it pushed this
    int64_t staleness = 0;           // updates that were missing in the parameters of its gradients
  };
  /// The passes of the next step are done: hands its gradients to the servers.
  struct Pushed {
    double loss_sum = 0, total_weight = 1;  // of this rank, and of all
    double lr = 0, max_norm = 0;            // 0: no clipping
    bool stop = false;                      // this rank wants to stop
  };
  void push(const Pushed& of);
  /// Waits until at most `staleness` updates are missing, and takes what came. Nothing if fewer steps were pushed.
  std::optional<Completed> pull();
  /// Waits until none is missing.
  std::vector<Completed> drain();

  /// Steps that were pushed.
  int64_t steps() const { return pushed_; }
  /// How many steps had gradients with so many updates missing, since this began.
  const std::vector<int64_t>& histogram() const { return histogram_; }
  int64_t last_staleness() const { return last_; }
  /// Seconds in which this rank waited for updates.
  double waited() const { return waited_; }
  Traffic traffic() const { return group_->traffic(); }

 private:
  /// A step on its way: gradients and then parameters, whole, by segment.
  struct Slot {
    std::vector<Tensor> gradients, parameters;
    Pushed of = {};
    Completed completed = {};
    Event done = {};
  };
  Slot& slot_of(int64_t step) { return slots_[static_cast<size_t>((step - 1) % static_cast<int64_t>(slots_.size()))]; }
  /// The thread of the servers.
  void serve(Slot& slot);
  void complete(std::vector<Completed>& completed);

  ShardedModel& model_;
  std::unique_ptr<Communicator> group_, guard_;
  int64_t staleness_;
  double gradient_factor_;
  std::vector<SegmentIndex> segments_;
  Tensor sums_ = {}, room_ = {};
  std::vector<Slot> slots_;
  int64_t pushed_ = 0, completed_ = 0, last_ = 0;
  std::vector<int64_t> histogram_;
  double waited_ = 0;
};

}  // namespace nought
