#include "nought/zero/parameter_store.h"

#include <algorithm>

#include "nought/base/math.h"
#include "nought/base/timing.h"
#include "nought/offload/host_context.h"

namespace nought {

ParameterStore::ParameterStore(const Context& context, const ParameterHome& options, const std::string& owner)
    : context_(context), host_(host_context(context)), options_(options), in_memory_(options.in_memory) {
  if (options_.home == Pool::file)
    space_ = std::make_unique<SwapSpace>(context_.memory, options_.folder, owner, options_.aio);
  if (device_is_host()) return;
  up_ = context_.memory->device().make_stream("parameters up");
  down_ = context_.memory->device().make_stream("parameters down");
}

std::optional<size_t> ParameterStore::add(int64_t numel, DType dtype, std::vector<Interval> gaps) {
  bool to_file = options_.home == Pool::file;
  if (to_file && numel <= in_memory_) {
    in_memory_ -= numel;
    to_file = false;
  }
  if (!to_file && device_is_host()) return std::nullopt;
  Room& room = rooms_.emplace_back(Room{.dtype = dtype, .numel = numel, .gaps = std::move(gaps)});
  if (to_file) {
    room.offset = file_bytes_;
    file_bytes_ += round_up(numel * size_of(dtype), kSwapGrid);
    in_files_ += numel;
  } else {
    room.host = Tensor::zeros(*context_.memory, {numel}, dtype, Category::parameters, Pool::host);
  }
  return rooms_.size() - 1;
}

void ParameterStore::open() {
  if (space_) file_ = std::make_unique<SwapFile>(*space_, "parameters", file_bytes_, Category::parameters);
}

Tensor ParameterStore::device_room(int64_t numel, DType dtype, Category category) const {
  if (space_ && device_is_host()) return aligned(*context_.memory, {numel}, dtype, category, Pool::device);
  return context_.empty({numel}, dtype, category);
}

Tensor ParameterStore::host_room(const Room& room, int64_t numel) const {
  return aligned(*context_.memory, {numel}, room.dtype, Category::parameters, Pool::host);
}

ParameterStore::Arrival ParameterStore::bring(size_t number, Interval elements, const Tensor& into) {
  Room& room = rooms_[number];
  const int64_t offset = room.offset + elements.begin * size_of(room.dtype);
  if (!room.host && device_is_host()) return {file_->read(offset, into)};
  Arrival arrival;
  up_->wait(context_.stream->record());  // what was in the room before
  if (room.host) {
    arrival.staging = room.host.flat(elements.begin, elements.end);
    up_->wait(room.written);
  } else {
    make_way(kArrivals - 1);
    arrival.staging = host_room(room, elements.size());
    up_->wait(file_->read(offset, arrival.staging));
  }
  copy(arrival.staging, into, *up_);
  arrival.event = room.brought = up_->record();
  if (!room.host) arriving_.push_back(arrival);
  bytes_up_ += into.bytes();
  return arrival;
}

void ParameterStore::make_way(size_t under_way) {
  for (; arriving_.size() > under_way; arriving_.pop_front()) wait_on_host(arriving_.front().event);
}

void ParameterStore::await(const Arrival& arrival) {
  waited_ += seconds_of([&] { context_.stream->wait(arrival.event); });
}

void ParameterStore::wait_on_host(const Event& event) {
  waited_ += seconds_of([&] { event.wait(); });
}

void ParameterStore::begin_update(size_t number, Pool where, bool reads) {
  Room& room = rooms_[number];
  if (room.updates++ > 0) return;
  make_way(0);
  land(number);
  const bool on_device = where == Pool::device;
  if (!on_device && room.host) {
    wait_on_host(room.brought);  // readers of what is overwritten
    room.values = room.host;
    return;
  }
  while (writing_.size() >= kWrites) land(writing_.front());
  if (on_device) {
    room.values = device_room(room.numel, room.dtype, Category::parameters);
    if (reads) room.read = bring(number, {0, room.numel}, room.values).event;
  } else {
    room.values = host_room(room, room.numel);
    if (reads) room.read = file_->read(room.offset, room.values);
  }
  if (!reads) clear_gaps(room);
}

void ParameterStore::clear_gaps(const Room& room) const {
  const Context& where = room.values.on_host() ? host_ : context_;
  for (const Interval& gap : room.gaps) where.zero(room.values.flat(gap.begin, gap.end));
}

Tensor ParameterStore::updating(size_t number) {
  const Room& room = rooms_[number];
  if (room.updates == 0) return {};
  if (room.values.on_host()) {
    wait_on_host(room.read);
  } else {
    await({room.read});
  }
  return room.values;
}

void ParameterStore::copy_down(const Tensor& from, const Tensor& to) {
  down_->wait(context_.stream->record());
  copy(from, to, *down_);
  bytes_down_ += from.bytes();
}

void ParameterStore::end_update(size_t number) {
  Room& room = rooms_[number];
  require(room.updates > 0, "an update of parameters ends that has not begun");
  if (--room.updates > 0) return;
  const bool is_home = room.host && room.values.on_host();
  if (is_home) {
    room.values = {};
    return;
  }
  if (room.host) {
    down_->wait(room.brought);
    copy_down(room.values, room.host);
    room.written = down_->record();
  } else if (room.values.on_host()) {
    room.written = file_->write(room.offset, room.values);
  } else {
    room.staging = host_room(room, room.numel);
    copy_down(room.values, room.staging);
    room.written = file_->write({{room.offset, room.staging}}, down_->record());
  }
  writing_.push_back(number);
}

void ParameterStore::land(size_t number) {
  const auto found = std::find(writing_.begin(), writing_.end(), number);
  if (found == writing_.end()) return;
  writing_.erase(found);
  Room& room = rooms_[number];
  wait_on_host(room.written);
  room.values = room.staging = {};
}

void ParameterStore::land_all() {
  while (!writing_.empty()) land(writing_.front());
}

std::string ParameterStore::note() const {
  if (!space_) return {};
  if (in_files_ == 0)
    return fmt::format("no parameters of this rank are in files: offload_param.max_in_cpu = {} holds them all",
                       options_.in_memory);
  const std::string why = space_->note().empty() ? "" : fmt::format(" ({})", space_->note());
  return fmt::format("{} parameters of this rank are in a file in {}, by {}{}", in_files_, options_.folder,
                     name_of(space_->backend()), why);
}

StateTraffic ParameterStore::traffic() const {
  StateTraffic traffic{.down = bytes_down_, .up = bytes_up_};
  if (space_) traffic.read = space_->traffic().read, traffic.written = space_->traffic().written;
  return traffic;
}

StateTimes ParameterStore::times() const { return {space_ ? space_->traffic().seconds : 0, waited_}; }

}  // namespace nought
