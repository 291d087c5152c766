// MicroBatch: all that belongs to one micro-batch of a sharded model, from its forward pass until its gradients are
// final.
//
// Design goals: any number of micro-batches may be between their passes at once, and their passes may come in any
// order, as a pipeline schedule has them. So the tape, the gradients that are not final yet (those of a head form in
// the forward pass), what the model keeps and the deferred products are here, and neither in the model nor in its
// store. Non-goals: computing two micro-batches at the same time; passes run one after another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nought/zero/sharded_model.h"

namespace nought {

/// It is the UnitStore of its own tape: parameters are the sharded model's, gradients its own.
class MicroBatch final : public UnitStore {
 public:
  struct Options {
    double gradient_scale = 1;         // of Model::loss()
    bool recording = true;             // false: the loss alone
    bool last = true;                  // its gradients are final after those of the step's other micro-batches
    bool deferred = false;             // weight gradients are formed by form_weight_gradients()
    const Context* context = nullptr;  // computes; null: the model's
  };
  /// The model and the batch outlive it.
  MicroBatch(ShardedModel& model, const Batch& batch, const Options& options);

  /// Runs the model's sections. Returns the loss, summed over the batch's targets: f64 [1], on the device.
  Tensor forward();
  /// Walks back. The gradients are handed to the reductions, Unit by Unit, but for deferred ones.
  void backward() { backward(0, {}); }

  /// Forward pass of the one of Model::chunks() that has this index. x: what the chunk before gave; undefined for the
  /// first. Returns what this one gives.
  Tensor forward(size_t index, const Chunk& chunk, const Tensor& x);
  /// d_result: the gradient of what forward() gave; undefined for the last chunk, which gave the loss, and where nobody
  /// wants it. Returns the gradient of x; undefined where nobody wants it.
  Tensor backward(size_t chunk, Tensor d_result);
  /// Room for what goes from one chunk to the next, or for its gradient.
  Tensor make_hidden() const;
  /// With `deferred`, after backward(): forms the gradients of weights, in the order of the walk back, and hands them
  /// to the reductions. Each is the product that backward() would have run, so the bits are the same at every ZeRO
  /// stage. Until then the inputs of those products are kept, and no whole gradients of a Unit but the head's, whose
  /// weight gets its gradient in the forward pass. Those of norms, biases, sinks and routers are formed by backward().
  void form_weight_gradients(size_t chunk = 0);

  /// What the model keeps of the micro-batch.
  const MicroBatchState& state() const { return *state_; }

  void before_forward(Unit& unit) override { model_.before_forward(unit); }
  void after_forward(Unit& unit) override { model_.after_forward(unit); }
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  void after_shared_backward(Unit& tile) override;
  void enter_part(const char* name) override { model_.enter_part(name); }
  void leave_part() override { model_.leave_part(); }
  Tensor values(const Unit& unit, size_t segment) override { return model_.values(unit, segment); }
  DType dtype() const override { return model_.dtype(); }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override;
  bool defers() const override { return deferred_; }
  void defer(std::function<void()> product) override {
    waiting_[at_work_].back().products.push_back(std::move(product));
  }

 private:
  /// A Unit whose gradients, and those of its tiles, are not final before its products ran.
  struct Waiting {
    Unit* unit;
    std::vector<std::function<void()>> products;
  };
  void finish(const Unit& unit);

  /// A chunk's passes.
  struct Passes {
    std::unique_ptr<Tape> tape;
    Var x, result;
  };

  ShardedModel& model_;
  Context context_;
  bool recording_, deferred_;
  bool walking_back_ = false;
  std::optional<Reducer::MicroBatch> gradients_;  // none without training
  std::vector<std::vector<Waiting>> waiting_;     // for each chunk
  size_t at_work_ = 0;                            // the chunk that is walked back
  std::shared_ptr<MicroBatchState> state_;
  std::vector<Passes> passes_;  // for each chunk; the nodes of their tapes use all of the above
};

}  // namespace nought
