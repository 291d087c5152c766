#include "nought/zero/file_gradients.h"

#include <utility>

#include "nought/base/math.h"
#include "nought/base/timing.h"
#include "nought/offload/host_context.h"

namespace nought {

FileGradients::FileGradients(const Context& context, DType dtype, const OffloadOptions& options,
                             const std::string& owner)
    : context_(context),
      host_(host_context(context)),
      dtype_(dtype),
      space_(std::make_shared<SwapSpace>(context.memory, options.folder, owner, options.aio)),
      adder_(context.memory->is_virtual() ? Stream::Kind::run_inline : Stream::Kind::worker, "gradients") {
  if (!device_is_host()) {
    down_ = context_.memory->device().make_stream("gradients down");
    up_ = context_.memory->device().make_stream("gradients up");
  } else if (!context_.memory->is_virtual()) {
    adder_.submit(use_one_openmp_thread);  // the cores are at work
  }
}

size_t FileGradients::add(int64_t numel, Interval counted) {
  rooms_.push_back({.numel = numel, .offset = file_bytes_, .counted = counted});
  file_bytes_ += round_up(numel * size_of(dtype_), kSwapGrid);
  return rooms_.size() - 1;
}

void FileGradients::open() {
  file_ = std::make_unique<SwapFile>(*space_, "gradients", file_bytes_, Category::gradients);
  squares_ = Tensor::zeros(*context_.memory, {static_cast<int64_t>(rooms_.size())}, DType::f64, Category::workspace,
                           context_.memory->host_pool());
}

Tensor FileGradients::host_room(int64_t numel, DType dtype) const {
  return aligned(*context_.memory, {numel}, dtype, Category::gradients, context_.memory->host_pool());
}

Tensor FileGradients::device_room(int64_t numel, DType dtype) const {
  return device_is_host() ? host_room(numel, dtype) : context_.empty({numel}, dtype, Category::gradients);
}

Event FileGradients::take(size_t number, const Tensor& from, bool add, bool last) {
  settle(kUnderWay - 1);
  Room& room = rooms_[number];
  Tensor landed = from, sum;
  Event arrived = context_.stream->record();
  if (!device_is_host()) {
    landed = host_room(from.numel(), from.dtype());
    down_->wait(arrived);
    copy(from, landed, *down_);
    traffic_.down += from.bytes();
    arrived = down_->record();
  }
  sum = landed;
  if (add || from.dtype() != dtype_) sum = host_room(from.numel(), dtype_);
  if (add) traffic_.read += sum.bytes();
  traffic_.written += sum.bytes();
  const Event before = add ? file_->read({{room.offset, sum}}, room.written) : Event();
  room.squared = last;
  const Interval counted = last ? room.counted : Interval{};
  const Tensor square = square_of(number);
  const bool casts = !add && from.dtype() != dtype_;
  const Event added = adder_.submit([=, host = host_] {
    arrived.wait();
    before.wait();
    if (add) host.run(AddTo{.x = landed, .into = sum});
    if (casts) host.run(Cast{.x = landed, .y = sum});
    if (!counted.empty()) host.run(SumSquares{.x = sum.flat(counted.begin, counted.end), .out = square});
  });
  room.written = file_->write({{room.offset, sum}}, added);
  under_way_.push_back({room.written, from, landed, sum});
  return room.written;
}

void FileGradients::settle(size_t under_way) {
  while (under_way_.size() > under_way) {
    waited_ += seconds_of([&] { under_way_.front().written.wait(); });
    under_way_.pop_front();
  }
}

FileGradients::Arrival FileGradients::bring(size_t number, Interval elements) {
  const Room& room = rooms_[number];
  Arrival arrival{.into = device_room(elements.size(), dtype_)};
  const int64_t offset = room.offset + elements.begin * size_of(dtype_);
  traffic_.read += arrival.into.bytes();
  if (device_is_host()) {
    arrival.event = file_->read({{offset, arrival.into}}, room.written);
    return arrival;
  }
  arrival.staging = host_room(elements.size(), dtype_);
  up_->wait(context_.stream->record());  // what was in the room before
  up_->wait(file_->read({{offset, arrival.staging}}, room.written));
  copy(arrival.staging, arrival.into, *up_);
  traffic_.up += arrival.into.bytes();
  arrival.event = up_->record();
  return arrival;
}

void FileGradients::await(const Arrival& arrival) {
  if (!device_is_host()) return context_.stream->wait(arrival.event);
  waited_ += seconds_of([&] { arrival.event.wait(); });
}

Event FileGradients::read(size_t number, std::span<const Interval> elements, std::span<const Tensor> into) const {
  const Room& room = rooms_[number];
  std::vector<SwapPart> parts;
  for (size_t i = 0; i < elements.size(); ++i)
    parts.push_back({room.offset + elements[i].begin * size_of(dtype_), into[i]});
  return file_->read(std::move(parts), room.written);
}

Tensor FileGradients::whole(size_t number) const {
  const Interval all{0, rooms_[number].numel};
  const Tensor values =
      Tensor::empty(*context_.memory, {all.size()}, dtype_, Category::workspace, context_.memory->host_pool());
  read(number, std::span(&all, 1), std::span(&values, 1)).wait();
  return values;
}

Tensor FileGradients::square(size_t number) {
  Room& room = rooms_[number];
  const Tensor square = square_of(number);
  if (!room.squared) {
    const Tensor sum = whole(number);
    host_.run(SumSquares{.x = sum.flat(room.counted.begin, room.counted.end), .out = square});
    room.squared = true;
  }
  return square;
}

void FileGradients::reset() {
  settle();
  for (Room& room : rooms_) room.squared = false;
}

}  // namespace nought
