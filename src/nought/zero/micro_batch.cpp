#include "nought/zero/micro_batch.h"

#include <utility>

namespace nought {

MicroBatch::MicroBatch(ShardedModel& model, const Batch& batch, const Options& options)
    : model_(model),
      batch_(batch),
      gradient_scale_(options.gradient_scale),
      deferred_(options.deferred),
      tape_(options.context ? *options.context : model.context(), options.recording, this) {
  if (model.reducer_ && options.recording) gradients_ = model.reducer_->begin_micro_batch(options.last);
}

Tensor MicroBatch::forward() {
  Model& model = model_.model();
  state_ = model.begin(tape_.context(), batch_, gradient_scale_);
  loss_ = run_sections(tape_, model.sections(), {}, state_);
  return loss_.value;
}

void MicroBatch::backward() { tape_.backward(loss_); }

void MicroBatch::form_weight_gradients() {
  for (Waiting& unit : std::exchange(waiting_, {})) {
    model_.begin_pass(*unit.unit, /*walking_back=*/true);
    for (std::function<void()>& product : unit.products) std::exchange(product, {})();  // and frees what it kept
    finish(*unit.unit);
    model_.note_pass();
  }
}

void MicroBatch::before_backward(Unit& unit) {
  model_.before_backward(unit);
  if (deferred_) waiting_.push_back({&unit, {}});
}

void MicroBatch::after_backward(Unit& unit) {
  model_.release(unit);
  if (!deferred_) finish(unit);
  model_.note_pass();
}

GradSink MicroBatch::gradient(const Unit& unit, size_t first, size_t last) {
  return gradients_ ? model_.reducer_->sink(*gradients_, unit.index(), first, last) : GradSink{};
}

void MicroBatch::finish(const Unit& unit) {
  if (gradients_) model_.reducer_->finish(*gradients_, unit.index());
}

}  // namespace nought
