#include "nought/zero/gradient_store.h"

namespace nought {

GradientStore::GradientStore(const Context& context, DType dtype, const OffloadTier& tier, const std::string& owner)
    : OffloadPool(context, {.tier = tier, .what = "gradients", .category = Category::gradients, .owner = owner}),
      context_(context),
      dtype_(dtype) {}

namespace {

void square_each(const Context& host, const Tensor& sum, const std::vector<Interval>& counted, const Tensor& squares) {
  for (size_t i = 0; i < counted.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    host.run(SumSquares{.x = sum.flat(counted[i].begin, counted[i].end), .out = squares.flat(at, at + 1)});
  }
}

}  // namespace

OffloadPool::Slot GradientStore::add(int64_t numel, std::vector<Interval> counted) {
  const int64_t first = rooms_.empty() ? 0 : rooms_.back().first + std::ssize(rooms_.back().counted);
  rooms_.push_back({.numel = numel, .counted = std::move(counted), .first = first});
  return OffloadPool::add(numel, dtype_);
}

void GradientStore::open() {
  OffloadPool::open();
  const int64_t squares = rooms_.empty() ? 0 : rooms_.back().first + std::ssize(rooms_.back().counted);
  squares_ = Tensor::zeros(*context_.memory, {squares}, DType::f64, Category::workspace, context_.memory->host_pool());
}

Event GradientStore::take(Slot slot, const Tensor& from, bool add, bool last) {
  Room& room = rooms_[slot];
  room.squared = last;
  OffloadPool::Then square;
  if (last && !room.counted.empty())
    square = [counted = room.counted, out = squares_of(room)](const Context& host, const Tensor& sum) {
      square_each(host, sum, counted, out);
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
  const Tensor squares = squares_of(room);
  if (!room.squared) {
    square_each(host(), values(slot), room.counted, squares);
    room.squared = true;
  }
  return squares;
}

void GradientStore::reset() {
  settle();
  settle_brought();
  for (Room& room : rooms_) room.squared = false;
}

}  // namespace nought
