#include "nought/autograd/recompute.h"

#include "nought/comm/flight_recorder.h"

namespace nought {

std::string RecomputeOptions::str() const {
  if (mode == Recompute::none) return {};
  std::string text = fmt::format("{} recompute", name_of(mode));
  if (checkpoints > 0) text += fmt::format(", {} checkpoint{}", checkpoints, checkpoints == 1 ? "" : "s");
  if (interval > 1) text += fmt::format(" of {} blocks at once", interval);
  if (pool == Pool::host) text += ", inputs on the host";
  if (contiguous) text += ", contiguous";
  if (partitioned) text += ", inputs shared out over tensor ranks";
  return text;
}

namespace {

/// What each rank keeps of so many elements; the last one may have fewer to keep.
int64_t part_of(int64_t elements, const Communicator* ranks) {
  return ranks == nullptr ? elements : ceil_div(elements, ranks->size());
}

Tensor gathered(const Context& context, const Tensor& part, const Shape& shape, Communicator& ranks) {
  const Tensor whole = context.empty({part.numel() * ranks.size()}, part.dtype());
  const FlightSubject subject(ranks, "saved inputs");
  ranks.wait(ranks.all_gather(part, whole), *context.stream);
  return whole.flat(0, shape.numel()).reshape(shape);
}

}  // namespace

SavedInputs::Pass SavedInputs::begin(const Context& context, int64_t count, const Tensor& x) {
  Pass pass(*this);
  if (options_.contiguous) pass.room_ = free_room(context, count * part_of(x.numel(), ranks_), x.dtype());
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

Tensor SavedInputs::Pass::room_for(const Context& context, int64_t elements, DType dtype) {
  if (!options_.contiguous)
    return Tensor::empty(*context.memory, {elements}, dtype, Category::activations, options_.pool);
  require((used_ + 1) * elements <= room_.numel(), "more inputs are kept than begin() was told");
  ++used_;
  return room_.flat((used_ - 1) * elements, used_ * elements);
}

SavedInputs::Kept SavedInputs::Pass::keep(const Context& context, const Tensor& x) {
  const bool on_device = options_.pool == Pool::device;
  if (!options_.contiguous && on_device && ranks_ == nullptr) return [x](const Context&) { return x; };
  const int64_t part = part_of(x.numel(), ranks_), begin = ranks_ == nullptr ? 0 : ranks_->rank() * part;
  const Tensor kept = room_for(context, part, x.dtype());
  if (const Interval own = intersect({begin, begin + part}, {0, x.numel()}); !own.empty())
    context.copy(x.flat(own.begin, own.end), kept.flat(0, own.size()));
  return [kept, on_device, shape = x.shape(), ranks = ranks_](const Context& on) {
    Tensor back = kept;
    if (!on_device) {
      back = on.empty(kept.shape(), kept.dtype());
      on.copy(kept, back);
    }
    return ranks == nullptr ? back.reshape(shape) : gathered(on, back, shape, *ranks);
  };
}

}  // namespace nought
