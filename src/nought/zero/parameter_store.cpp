#include "nought/zero/parameter_store.h"

#include <utility>

namespace nought {

ParameterStore::ParameterStore(const Context& context, const ParameterOffload& options, const std::string& owner)
    : OffloadPool(context,
                  {.tier = options.tier, .what = "parameters", .category = Category::parameters, .owner = owner}),
      context_(context),
      options_(options),
      in_memory_(options.in_memory) {}

std::optional<OffloadPool::Slot> ParameterStore::add(int64_t numel, DType dtype, std::vector<Interval> gaps) {
  Pool pool = options_.tier.pool;
  if (pool == Pool::file && numel <= in_memory_) {
    in_memory_ -= numel;
    pool = Pool::host;
  }
  if (pool == Pool::host && context_.memory->device().is_host()) return std::nullopt;
  if (pool == Pool::file) in_files_ += numel;
  rooms_.push_back({.numel = numel, .dtype = dtype, .gaps = std::move(gaps)});
  return OffloadPool::add(numel, dtype, pool);
}

void ParameterStore::begin_update(Slot slot, Pool where, bool reads) {
  Room& room = rooms_[slot];
  if (room.updates++ > 0) return;
  settle_brought();
  complete(slot);
  const bool on_device = where == Pool::device;
  if (!on_device && !in_file(slot)) {
    room.values = held(slot);
    return;
  }
  settle(UnderWay::kMost - 1);
  room.values =
      on_device ? device_room(room.numel, room.dtype, Category::parameters) : host_room(room.numel, room.dtype);
  if (reads) {
    room.read = bring(slot, {0, room.numel}, room.values);
    return;
  }
  const Context& there = room.values.on_host() ? host() : context_;
  for (const Interval& gap : room.gaps) there.zero(room.values.flat(gap.begin, gap.end));
}

Tensor ParameterStore::updating(Slot slot) {
  const Room& room = rooms_[slot];
  if (room.updates == 0) return {};
  if (room.values.on_host()) {
    wait(room.read);
  } else {
    await(room.read);
  }
  return room.values;
}

void ParameterStore::end_update(Slot slot) {
  Room& room = rooms_[slot];
  require(room.updates > 0, "an update of parameters ends that has not begun");
  if (--room.updates > 0) return;
  const Tensor values = std::exchange(room.values, {});
  const bool is_home = values.on_host() && !in_file(slot);
  if (!is_home) write(slot, values);
}

std::string ParameterStore::note() const {
  if (options_.tier.pool != Pool::file) return {};
  if (in_files_ == 0)
    return fmt::format("no parameters of this rank are in files: offload_param.max_in_cpu = {} holds them all",
                       options_.in_memory);
  return fmt::format("{} parameters of this rank are in a file in {}", in_files_, drive());
}

}  // namespace nought
