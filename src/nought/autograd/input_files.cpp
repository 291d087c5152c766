#include "nought/autograd/input_files.h"

#include <algorithm>
#include <utility>

#include "nought/base/error.h"
#include "nought/base/math.h"

namespace nought {

InputFiles::InputFiles(std::shared_ptr<Memory> memory, const RecomputeOptions& options, const std::string& owner)
    : memory_(std::move(memory)), space_(memory_, options.folder, owner, options.aio) {}

std::shared_ptr<InputFiles::Room> InputFiles::room_for(int64_t count, int64_t bytes) {
  const int64_t stride = round_up(bytes, kSwapGrid);
  const auto unused = [](const std::shared_ptr<Room>& room) { return room.use_count() == 1; };
  const auto fits = [&](const std::shared_ptr<Room>& room) {
    return unused(room) && room->file->bytes() >= count * stride;
  };
  auto found = std::find_if(rooms_.begin(), rooms_.end(), fits);
  if (found == rooms_.end()) {
    found = std::find_if(rooms_.begin(), rooms_.end(), unused);
    if (found != rooms_.end()) rooms_.erase(found);  // before the larger one is asked for
    found = rooms_.insert(rooms_.end(), std::make_shared<Room>());
    (*found)->file = std::make_unique<SwapFile>(space_, "saved inputs", count * stride, Category::activations);
  }
  (*found)->stride = stride;
  (*found)->inputs.clear();
  return *found;
}

Tensor InputFiles::host_room(int64_t numel, DType dtype) const {
  return aligned(*memory_, {numel}, dtype, Category::activations, memory_->host_pool());
}

Tensor InputFiles::device_room(int64_t numel, DType dtype) const {
  return device_is_host() ? host_room(numel, dtype) : Tensor::empty(*memory_, {numel}, dtype, Category::activations);
}

void InputFiles::settle(size_t under_way) {
  while (writes_.size() > under_way) {
    writes_.front().done.wait();
    writes_.pop_front();
  }
}

std::shared_ptr<InputFiles::Input> InputFiles::keep(const Context& context, const std::shared_ptr<Room>& room,
                                                    const Tensor& x) {
  const size_t number = room->inputs.size();
  const int64_t offset = static_cast<int64_t>(number) * room->stride;
  require(x.bytes() <= room->stride && offset + room->stride <= room->file->bytes(),
          "more inputs are kept than begin() was told");
  settle(kWrites - 1);
  Tensor from = x;
  if (!device_is_host()) {
    from = host_room(x.numel(), x.dtype());
    context.copy(x, from);
  }
  writes_.push_back({room->file->write({{offset, from}}, context.stream->record()), from});
  auto input = std::make_shared<Input>(Input{.room = room, .number = number, .numel = x.numel(), .dtype = x.dtype()});
  room->inputs.push_back(input);
  return input;
}

void InputFiles::begin_read(Input& input) const {
  if (input.arriving) return;
  input.arriving = host_room(input.numel, input.dtype);
  input.read = input.room->file->read(static_cast<int64_t>(input.number) * input.room->stride, input.arriving);
}

Tensor InputFiles::take(const Context& context, Input& input) {
  settle(0);
  begin_read(input);
  if (input.number > 0)
    if (const std::shared_ptr<Input> before = input.room->inputs[input.number - 1].lock()) begin_read(*before);
  Tensor arrived = std::exchange(input.arriving, {});
  if (device_is_host()) {
    input.read.wait();
    return arrived;
  }
  // The host runs ahead of the device: what it has read waits there for one copy at most.
  copied_.done.wait();
  const Tensor back = device_room(input.numel, input.dtype);
  context.stream->wait(input.read);
  context.copy(arrived, back);
  copied_ = {context.stream->record(), std::move(arrived)};
  return back;
}

}  // namespace nought
