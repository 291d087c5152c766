#include "nought/zero/micro_batch.h"

#include <utility>

namespace nought {

MicroBatch::MicroBatch(ShardedModel& model, const Batch& batch, const Options& options)
    : model_(model),
      context_(options.context ? *options.context : model.context()),
      recording_(options.recording),
      deferred_(options.deferred) {
  if (model.reducer_ && options.recording) gradients_ = model.reducer_->begin_micro_batch(options.last);
  state_ = model.model().begin(context_, batch, options.gradient_scale);
}

Tensor MicroBatch::make_hidden() const { return context_.empty(model_.model().hidden_shape(*state_), model_.dtype()); }

Tensor MicroBatch::forward() {
  const std::vector<Chunk> chunks = model_.model().chunks();
  return forward(0, chunks.at(0), {});
}

Tensor MicroBatch::forward(size_t index, const Chunk& chunk, const Tensor& x) {
  if (passes_.size() <= index) passes_.resize(index + 1), waiting_.resize(index + 1);
  Passes& passes = passes_[index];
  passes.tape = std::make_unique<Tape>(context_, recording_, this);
  if (x) passes.x = chunk.wanted && recording_ ? passes.tape->input(x) : Tape::constant(x);
  passes.result = run_sections(*passes.tape, chunk.sections, passes.x, state_);
  passes.x.value = {};
  // What follows may be freed before the walk back; only a loss is read again.
  return chunk.last() ? passes.result.value : std::exchange(passes.result.value, {});
}

Tensor MicroBatch::backward(size_t chunk, Tensor d_result) {
  require(recording_, "a micro-batch whose forward pass was not recorded cannot be walked back");
  const auto [tape, x, result] = std::exchange(passes_.at(chunk), {});
  at_work_ = chunk;
  if (!result.requires_grad()) return {};  // nothing up to here is trained
  walking_back_ = true;
  tape->backward(result, std::move(d_result));
  walking_back_ = false;
  for (const auto& unit : model_.model().units())  // the owner alone runs it, and so reports that they are final
    if (unit->is_copy() && chunk + 1 == passes_.size() && (deferred_ || unit->tile_of() == nullptr)) finish(*unit);
  return x.requires_grad() ? tape->gradient(x) : Tensor{};
}

void MicroBatch::form_weight_gradients(size_t chunk) {
  for (Waiting& unit : std::exchange(waiting_.at(chunk), {})) {
    model_.passes_.begin(*unit.unit, /*walking_back=*/true);
    for (std::function<void()>& product : unit.products) std::exchange(product, {})();  // and frees what it kept
    finish(*unit.unit);
    for (const Unit* tile : unit.unit->tiles()) finish(*tile);
    model_.passes_.end(*unit.unit);
  }
}

void MicroBatch::before_backward(Unit& unit) {
  model_.before_backward(unit);
  if (deferred_ && unit.tile_of() == nullptr) waiting_[at_work_].push_back({&unit, {}});
}

void MicroBatch::after_backward(Unit& unit) {
  model_.release(unit);
  if (!deferred_) finish(unit);
  model_.passes_.end(unit);
}

void MicroBatch::after_shared_backward(Unit& tile) {
  model_.release(tile);
  if (deferred_ || !gradients_) return;     // what forms the others forms these too
  if (tile.is_copy()) return finish(tile);  // the other Unit is on another rank
  model_.reducer_->reduce_so_far(*gradients_, tile.index());
}

GradSink MicroBatch::gradient(const Unit& unit, size_t first, size_t last) {
  return gradients_
             ? model_.reducer_->sink(*gradients_, unit.index(), first, last, /*early=*/deferred_ && walking_back_)
             : GradSink{};
}

void MicroBatch::finish(const Unit& unit) {
  if (!gradients_) return;
  model_.reducer_->finish(*gradients_, unit.index());
  model_.optimizer_->lane().update_early();
}

}  // namespace nought
