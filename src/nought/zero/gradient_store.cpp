#include "nought/zero/gradient_store.h"

namespace nought {

GradientStore::GradientStore(const Context& context, DType dtype, const OffloadTier& tier, const std::string& owner)
    : context_(context),
      dtype_(dtype),
      pool_(context, {.tier = tier, .what = "gradients", .category = Category::gradients, .owner = owner}) {}

size_t GradientStore::add(int64_t numel, Interval counted) {
  rooms_.push_back({.numel = numel, .counted = counted});
  return pool_.add(numel, dtype_);
}

void GradientStore::open() {
  pool_.open();
  squares_ = Tensor::zeros(*context_.memory, {static_cast<int64_t>(rooms_.size())}, DType::f64, Category::workspace,
                           context_.memory->host_pool());
}

Event GradientStore::take(size_t number, const Tensor& from, bool add, bool last) {
  Room& room = rooms_[number];
  room.squared = last;
  OffloadPool::Then square;
  if (last && !room.counted.empty())
    square = [counted = room.counted, out = square_of(number)](const Context& host, const Tensor& sum) {
      host.run(SumSquares{.x = sum.flat(counted.begin, counted.end), .out = out});
    };
  return pool_.add_to(number, from, add, std::move(square));
}

GradientStore::Arrival GradientStore::bring(size_t number, Interval elements) {
  Arrival arrival{.into = pool_.device_room(elements.size(), dtype_, Category::gradients)};
  arrival.event = pool_.bring(number, elements, arrival.into);
  return arrival;
}

Tensor GradientStore::await(const Arrival& arrival) {
  pool_.await(arrival.event);
  return arrival.into;
}

Tensor GradientStore::square(size_t number) {
  Room& room = rooms_[number];
  const Tensor square = square_of(number);
  if (!room.squared) {
    const Tensor sum = whole(number);
    pool_.host().run(SumSquares{.x = sum.flat(room.counted.begin, room.counted.end), .out = square});
    room.squared = true;
  }
  return square;
}

void GradientStore::reset() {
  pool_.settle();
  pool_.settle_brought();
  for (Room& room : rooms_) room.squared = false;
}

}  // namespace nought
