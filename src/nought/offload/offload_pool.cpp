#include "nought/offload/offload_pool.h"

#include <utility>

#include "nought/base/math.h"
#include "nought/offload/host_context.h"

namespace nought {

OffloadPool::OffloadPool(const Context& context, const Options& options)
    : context_(context),
      host_(host_context(context)),
      tier_(options.tier),
      what_(options.what),
      category_(options.category),
      space_(options.space),
      copies_(context, options.what) {
  if (tier_.pool == Pool::file && !space_)
    space_ = std::make_shared<SwapSpace>(context_.memory, tier_.folder, options.owner, tier_.aio);
}

OffloadPool::Slot OffloadPool::add(int64_t numel, DType dtype, Pool pool) {
  Room& room = rooms_.emplace_back(Room{.dtype = dtype, .numel = numel});
  if (pool == Pool::file) {
    room.offset = file_bytes_;
    file_bytes_ += round_up(numel * size_of(dtype), kSwapGrid);
  } else if (pool == Pool::device) {
    room.values = context_.zeros({numel}, dtype, category_);
  } else {
    room.values = Tensor::zeros(*context_.memory, {numel}, dtype, category_, pool);
  }
  return rooms_.size() - 1;
}

void OffloadPool::open() {
  if (tier_.pool == Pool::file) file_ = std::make_unique<SwapFile>(*space_, what_, file_bytes_, category_);
}

Tensor OffloadPool::device_room(int64_t numel, DType dtype, Category category) const {
  if (space_ && context_.memory->device().is_host())
    return aligned(*context_.memory, {numel}, dtype, category, Pool::device);
  return context_.empty({numel}, dtype, category);
}

Tensor OffloadPool::host_room(int64_t numel, DType dtype, Category category) const {
  const Pool pool = context_.memory->host_pool();
  return space_ ? aligned(*context_.memory, {numel}, dtype, category, pool)
                : Tensor::empty(*context_.memory, {numel}, dtype, category, pool);
}

Event OffloadPool::bring(Slot slot, Interval elements, const Tensor& into) {
  Room& room = rooms_[slot];
  if (room.values) {
    const Tensor from = room.values.flat(elements.begin, elements.end);
    return room.brought = copies_.up(from, into, {context_.stream->record(), room.written});
  }
  read_ += into.bytes();
  const int64_t offset = offset_of(room, elements.begin);
  if (into.on_host()) return file_->read(offset, into);
  arriving_.settle(UnderWay::kMost - 1);
  const Tensor staging = host_room(elements.size(), room.dtype);
  room.brought = copies_.up(staging, into, {context_.stream->record(), file_->read(offset, staging)});
  arriving_.add(room.brought, {staging});
  return room.brought;
}

void OffloadPool::await(const Event& brought) {
  awaited_ += seconds_of([&] { context_.stream->wait(brought); });
}

Event OffloadPool::write(Slot slot, const Tensor& from, Event after) {
  Room& room = rooms_[slot];
  Tensor lower = from;
  if (!from.on_host()) {
    lower = room.values ? room.values : host_room(from.numel(), room.dtype);
    after = copies_.down(from, lower, {room.brought, context_.stream->record()});
  }
  if (!room.values) {
    written_ += lower.bytes();
    after = file_->write({{room.offset, lower}}, std::move(after));
  }
  room.written = std::move(after);
  writing_.add(room.written, {from, lower}, slot);
  return room.written;
}

Stream& OffloadPool::adder() {
  if (adder_) return *adder_;
  const bool is_virtual = context_.memory->is_virtual();
  adder_ = std::make_unique<Stream>(is_virtual ? Stream::Kind::run_inline : Stream::Kind::worker, what_);
  if (!is_virtual && context_.memory->device().is_host())
    adder_->submit(use_one_openmp_thread);  // the cores are at work
  return *adder_;
}

Event OffloadPool::add_to(Slot slot, const Tensor& from, bool add, Then then) {
  settle(UnderWay::kMost - 1);
  Room& room = rooms_[slot];
  const bool exact = !add && from.dtype() == room.dtype;
  Tensor lower = from;
  Event arrived = context_.stream->record();
  if (!from.on_host()) {
    lower = exact && room.values ? room.values : host_room(from.numel(), from.dtype());
    arrived = copies_.down(from, lower, {arrived});
  }
  const Tensor sum = room.values ? room.values : exact ? lower : host_room(from.numel(), room.dtype);
  Event before;
  if (!room.values && add) {
    read_ += sum.bytes();
    before = file_->read(room.offset, sum);
  }
  // Also what lies where it belongs comes after what was added before.
  room.written = adder().submit([=, host = host_, then = std::move(then)] {
    arrived.wait();
    before.wait();
    if (add) host.run(AddTo{.x = lower, .into = sum});
    if (!add && !exact) host.run(Cast{.x = lower, .y = sum});
    if (then) then(host, sum);
  });
  if (!room.values) {
    written_ += sum.bytes();
    room.written = file_->write({{room.offset, sum}}, room.written);
  }
  writing_.add(room.written, {from, lower, sum}, slot);
  return room.written;
}

Tensor OffloadPool::held(Slot slot) {
  const Room& room = rooms_[slot];
  wait(room.brought);  // readers of what may be overwritten
  wait(room.written);
  return room.values;
}

Tensor OffloadPool::values(Slot slot, Interval elements) const {
  const Room& room = rooms_[slot];
  if (room.values) return room.values.flat(elements.begin, elements.end);
  const Tensor values =
      Tensor::empty(*context_.memory, {elements.size()}, room.dtype, Category::workspace, context_.memory->host_pool());
  read(slot, elements, values);
  return values;
}

std::vector<SwapPart> OffloadPool::swapped(std::span<const Part> parts) const {
  std::vector<SwapPart> found;
  for (const Part& part : parts) found.push_back({offset_of(rooms_[part.slot], part.first), part.tensor});
  return found;
}

std::string OffloadPool::drive() const {
  const std::string why = space_->note().empty() ? "" : fmt::format(" ({})", space_->note());
  return fmt::format("{}, by {}{}", tier_.folder, name_of(space_->backend()), why);
}

StateTraffic OffloadPool::traffic() const {
  return {.down = copies_.bytes_down(), .up = copies_.bytes_up(), .read = read_, .written = written_};
}

StateTimes OffloadPool::times() const {
  return {space_ ? space_->traffic().seconds : 0, awaited_ + writing_.waited() + arriving_.waited()};
}

}  // namespace nought
