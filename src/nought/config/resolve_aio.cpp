// How files that states and parameters are offloaded to are read and written: DeepSpeed's section aio.
#include "nought/base/math.h"
#include "nought/config/resolver.h"

namespace nought {

namespace {

constexpr const char* kNothing = "nothing is offloaded to files";

}  // namespace

void Resolver::resolve_aio(bool to_files) {
  const AioOptions defaults;
  const auto use = [&](const std::string& key, const auto& setting, auto fallback) {
    const std::string path = "aio." + key;
    Candidate<decltype(fallback)> value{fallback, false, origins_.place("deepspeed." + path),
                                        "DeepSpeed's default of " + path};
    if (setting.automatic()) value.reason = "deepspeed: auto <- " + value.reason;
    if (setting.given()) value = deepspeed<decltype(fallback)>(path, setting.value);
    if (!to_files && value.value != fallback)
      warn(fmt::format("{} = {} has no effect: {}", value.place, value.value, kNothing));
    return value;
  };
  auto block = use("block_size", ds_.aio.block_size, defaults.block_size);
  const auto depth = use("queue_depth", ds_.aio.queue_depth, int64_t{defaults.queue_depth});
  auto threads = use("intra_op_parallelism", ds_.aio.intra_op_parallelism, int64_t{defaults.intra_op_parallelism});
  for (const auto& [key, setting] :
       {std::pair("thread_count", &ds_.aio.thread_count), std::pair("num_threads", &ds_.aio.num_threads)}) {
    const auto alias = use(key, *setting, int64_t{defaults.intra_op_parallelism});
    if (to_files && alias.given) require_equal(alias, threads);
    if (alias.given) threads = alias;
  }
  const auto single = use("single_submit", ds_.aio.single_submit, defaults.single_submit);
  const auto overlap = use("overlap_events", ds_.aio.overlap_events, defaults.overlap_events);
  const auto backend = training("aio_backend", config_.training.aio_backend);
  if (!to_files) {
    if (backend.value != defaults.backend)
      warn(fmt::format("{} = {} has no effect: {}", backend.place, enum_name(backend.value), kNothing));
    return;
  }

  const auto within = [&](const Candidate<int64_t>& number, int64_t most) {
    require<ConfigError>(1 <= number.value && number.value <= most, "{}: expected 1 to {}, got {}", number.place, most,
                         number.value);
    return number;
  };
  within(block, kLargestSwapBlock);
  if (block.value % kSwapGrid != 0) {
    block.value = round_up(block.value, kSwapGrid);
    block.reason += fmt::format(", rounded up to a multiple of {}", kSwapGrid);
  }
  plan_.layout.sharding.offload_optimizer.tier.aio = plan_.layout.sharding.offload_param.tier.aio =
      plan_.layout.recompute.tier.aio = {
          .block_size = note("aio.block_size", block),
          .queue_depth = static_cast<int>(note("aio.queue_depth", within(depth, kMostSwapDepth))),
          .intra_op_parallelism = static_cast<int>(note("aio.intra_op_parallelism", within(threads, kMostSwapThreads))),
          .single_submit = note("aio.single_submit", single),
          .overlap_events = note("aio.overlap_events", overlap),
          .backend = backend.value};
  plan_.resolved.push_back({"aio_backend", std::string(enum_name(backend.value)), backend.reason});
}

}  // namespace nought
