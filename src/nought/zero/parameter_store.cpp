#include "nought/zero/parameter_store.h"

#include <utility>

namespace nought {

ParameterStore::ParameterStore(const Context& context, const ParameterOffload& options, const std::string& owner)
    : context_(context),
      options_(options),
      in_memory_(options.in_memory),
      pool_(context, {.tier = options.tier, .what = "parameters", .category = Category::parameters, .owner = owner}) {}

std::optional<size_t> ParameterStore::add(int64_t numel, DType dtype, std::vector<Interval> gaps) {
  Pool pool = options_.tier.pool;
  if (pool == Pool::file && numel <= in_memory_) {
    in_memory_ -= numel;
    pool = Pool::host;
  }
  if (pool == Pool::host && context_.memory->device().is_host()) return std::nullopt;
  if (pool == Pool::file) in_files_ += numel;
  rooms_.push_back({.numel = numel, .dtype = dtype, .gaps = std::move(gaps)});
  return pool_.add(numel, dtype, pool);
}

void ParameterStore::begin_update(size_t number, Pool where, bool reads) {
  Room& room = rooms_[number];
  if (room.updates++ > 0) return;
  pool_.settle_brought();
  pool_.land(number);
  const bool on_device = where == Pool::device;
  if (!on_device && !pool_.in_file(number)) {
    room.values = pool_.held(number);
    return;
  }
  pool_.settle(UnderWay::kMost - 1);
  room.values = on_device ? pool_.device_room(room.numel, room.dtype, Category::parameters)
                          : pool_.host_room(room.numel, room.dtype);
  if (reads) {
    room.read = pool_.bring(number, {0, room.numel}, room.values);
    return;
  }
  const Context& there = room.values.on_host() ? pool_.host() : context_;
  for (const Interval& gap : room.gaps) there.zero(room.values.flat(gap.begin, gap.end));
}

Tensor ParameterStore::updating(size_t number) {
  const Room& room = rooms_[number];
  if (room.updates == 0) return {};
  if (room.values.on_host()) {
    pool_.wait(room.read);
  } else {
    pool_.await(room.read);
  }
  return room.values;
}

void ParameterStore::end_update(size_t number) {
  Room& room = rooms_[number];
  require(room.updates > 0, "an update of parameters ends that has not begun");
  if (--room.updates > 0) return;
  const Tensor values = std::exchange(room.values, {});
  const bool is_home = values.on_host() && !pool_.in_file(number);
  if (!is_home) pool_.write(number, values);
}

std::string ParameterStore::note() const {
  if (options_.tier.pool != Pool::file) return {};
  if (in_files_ == 0)
    return fmt::format("no parameters of this rank are in files: offload_param.max_in_cpu = {} holds them all",
                       options_.in_memory);
  return fmt::format("{} parameters of this rank are in a file in {}", in_files_, pool_.drive());
}

}  // namespace nought
