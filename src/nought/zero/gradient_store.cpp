#include "nought/zero/gradient_store.h"

namespace nought {

GradientStore::GradientStore(const Context& context, DType dtype, const OffloadTier& tier, const std::string& owner)
    : OffloadPool(context, {.tier = tier, .what = "gradients", .category = Category::gradients, .owner = owner}),
      context_(context),
      dtype_(dtype) {}

OffloadPool::Slot GradientStore::add(int64_t numel, Interval counted) {
  rooms_.push_back({.numel = numel, .counted = counted});
  return OffloadPool::add(numel, dtype_);
}

void GradientStore::open() {
  OffloadPool::open();
  squares_ = Tensor::zeros(*context_.memory, {static_cast<int64_t>(rooms_.size())}, DType::f64, Category::workspace,
                           context_.memory->host_pool());
}

Event GradientStore::take(Slot slot, const Tensor& from, bool add, bool last) {
  Room& room = rooms_[slot];
  room.squared = last;
  OffloadPool::Then square;
  if (last && !room.counted.empty())
    square = [counted = room.counted, out = square_of(slot)](const Context& host, const Tensor& sum) {
      host.run(SumSquares{.x = sum.flat(counted.begin, counted.end), .out = out});
    };
  return add_to(slot, from, add, std::move(square));
}

GradientStore::Arrival GradientStore::bring(Slot slot, Interval elements) {
  Arrival arrival{.into = device_room(elements.size(), dtype_, Category::gradients)};
  arrival.event = OffloadPool::bring(slot, elements, arrival.into);
  return arrival;
}

Tensor GradientStore::await(const Arrival& arrival) {
  OffloadPool::await(arrival.event);
  return arrival.into;
}

Tensor GradientStore::square(Slot slot) {
  Room& room = rooms_[slot];
  const Tensor square = square_of(slot);
  if (!room.squared) {
    const Tensor sum = values(slot);
    host().run(SumSquares{.x = sum.flat(room.counted.begin, room.counted.end), .out = square});
    room.squared = true;
  }
  return square;
}

void GradientStore::reset() {
  settle();
  settle_brought();
  for (Room& room : rooms_) room.squared = false;
}

}  // namespace nought
