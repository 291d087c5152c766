#include "nought/autograd/input_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nought/base/error.h"
#include "nought/base/math.h"

namespace nought {

std::shared_ptr<InputFiles::Room> InputFiles::room_for(const Context& context, int64_t count, int64_t bytes) {
  const int64_t stride = round_up(bytes, kSwapGrid);
  const auto unused = [](const std::shared_ptr<Room>& room) { return room.use_count() == 1; };
  const auto fits = [&](const std::shared_ptr<Room>& room) {
    return unused(room) && room->pool.bytes(0) >= count * stride;
  };
  auto found = std::find_if(rooms_.begin(), rooms_.end(), fits);
  if (found == rooms_.end()) {
    found = std::find_if(rooms_.begin(), rooms_.end(), unused);
    if (found != rooms_.end()) rooms_.erase(found);  // before the larger one is asked for
    found = rooms_.insert(rooms_.end(), std::make_shared<Room>(Room{.pool = {context, options_}}));
    (*found)->pool.add(count * stride, DType::u8);
    (*found)->pool.open();
  }
  (*found)->stride = stride;
  (*found)->inputs.clear();
  return *found;
}

std::shared_ptr<InputFiles::Input> InputFiles::keep(const Context& context, const std::shared_ptr<Room>& room,
                                                    const Tensor& x) {
  const size_t number = room->inputs.size();
  const int64_t offset = static_cast<int64_t>(number) * room->stride;
  require(x.bytes() <= room->stride && offset + room->stride <= room->pool.bytes(0),
          "more inputs are kept than begin() was told");
  writes_.settle(UnderWay::kMost - 1);
  Tensor from = x;
  if (!x.on_host()) {
    from = room->pool.host_room(x.numel(), x.dtype());
    context.copy(x, from);
  }
  writes_.add(room->pool.write(std::array{OffloadPool::Part{0, offset, from}}, context.stream->record()), {from});
  auto input = std::make_shared<Input>(Input{.room = room, .number = number, .numel = x.numel(), .dtype = x.dtype()});
  room->inputs.push_back(input);
  return input;
}

void InputFiles::begin_read(Input& input) {
  if (input.arriving) return;
  Room& room = *input.room;
  const int64_t first = static_cast<int64_t>(input.number) * room.stride;
  input.arriving = room.pool.host_room(input.numel, input.dtype);
  input.read = room.pool.read(std::array{OffloadPool::Part{0, first, input.arriving}});
}

Tensor InputFiles::take(const Context& context, Input& input) {
  writes_.settle();
  begin_read(input);
  if (input.number > 0)
    if (const std::shared_ptr<Input> before = input.room->inputs[input.number - 1].lock()) begin_read(*before);
  const Tensor arrived = std::exchange(input.arriving, {});
  if (context.memory->device().is_host()) {
    input.read.wait();
    return arrived;
  }
  // The host runs ahead of the device: what it has read waits there for one copy at most.
  copied_.settle();
  const Tensor back = context.empty({input.numel}, input.dtype);
  context.stream->wait(input.read);
  context.copy(arrived, back);
  copied_.add(context.stream->record(), {arrived});
  return back;
}

}  // namespace nought
