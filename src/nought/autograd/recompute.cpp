#include "nought/autograd/recompute.h"

namespace nought {

std::string RecomputeOptions::str() const {
  if (mode == Recompute::none) return {};
  std::string text = fmt::format("{} recompute", name_of(mode));
  if (checkpoints > 0) text += fmt::format(", {} checkpoint{}", checkpoints, checkpoints == 1 ? "" : "s");
  if (interval > 1) text += fmt::format(" of {} blocks at once", interval);
  if (pool == Pool::host) text += ", inputs on the host";
  if (contiguous) text += ", contiguous";
  return text;
}

SavedInputs::Pass SavedInputs::begin(const Context& context, int64_t count, const Tensor& x) {
  Pass pass(options_);
  if (options_.contiguous) pass.room_ = free_room(context, count * x.numel(), x.dtype());
  return pass;
}

Tensor SavedInputs::free_room(const Context& context, int64_t elements, DType dtype) {
  const auto fits = [&](const Tensor& room) {
    return room.unique() && room.dtype() == dtype && room.numel() >= elements;
  };
  if (const auto found = std::find_if(rooms_.begin(), rooms_.end(), fits); found != rooms_.end()) return *found;
  const auto unused = std::find_if(rooms_.begin(), rooms_.end(), [](const Tensor& room) { return room.unique(); });
  if (unused != rooms_.end()) rooms_.erase(unused);  // before the larger one is asked for
  return rooms_.emplace_back(Tensor::empty(*context.memory, {elements}, dtype, Category::activations, options_.pool));
}

SavedInputs::Kept SavedInputs::Pass::keep(const Context& context, const Tensor& x) {
  if (!options_.contiguous && options_.pool == Pool::device) return [x](const Context&) { return x; };
  Tensor kept;
  if (options_.contiguous) {
    require((used_ + 1) * x.numel() <= room_.numel(), "more inputs are kept than begin() was told");
    kept = room_.flat(used_ * x.numel(), (used_ + 1) * x.numel()).reshape(x.shape());
    ++used_;
  } else {
    kept = Tensor::empty(*context.memory, x.shape(), x.dtype(), Category::activations, options_.pool);
  }
  context.copy(x, kept);
  if (options_.pool == Pool::device) return [kept](const Context&) { return kept; };
  return [kept](const Context& on) {
    const Tensor back = on.empty(kept.shape(), kept.dtype());
    on.copy(kept, back);
    return back;
  };
}

}  // namespace nought
