// How files that states and parameters are offloaded to are read and written: DeepSpeed's section aio.
#include "nought/base/math.h"
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

constexpr const char* kNothing = "nothing is offloaded to files";

}  // namespace

void resolve_aio(Resolver& r, bool to_files) {
  const AioOptions defaults;
  const auto use = [&](const std::string& key, const auto& setting, auto fallback) {
    const std::string path = "aio." + key;
    Candidate<decltype(fallback)> value{fallback, false, r.origins.place("deepspeed." + path),
                                        "DeepSpeed's default of " + path};
    if (setting.automatic()) value.reason = "deepspeed: auto <- " + value.reason;
    if (setting.given()) value = r.deepspeed<decltype(fallback)>(path, setting.value);
    if (!to_files && value.value != fallback)
      r.warn(fmt::format("{} = {} has no effect: {}", value.place, value.value, kNothing));
    return value;
  };
  auto block = use("block_size", r.ds.aio.block_size, defaults.block_size);
  const auto depth = use("queue_depth", r.ds.aio.queue_depth, int64_t{defaults.queue_depth});
  auto threads = use("intra_op_parallelism", r.ds.aio.intra_op_parallelism, int64_t{defaults.intra_op_parallelism});
  for (const auto& [key, setting] :
       {std::pair("thread_count", &r.ds.aio.thread_count), std::pair("num_threads", &r.ds.aio.num_threads)}) {
    const auto alias = use(key, *setting, int64_t{defaults.intra_op_parallelism});
    if (to_files && alias.given) require_equal(alias, threads);
    if (alias.given) threads = alias;
  }
  const auto single = use("single_submit", r.ds.aio.single_submit, defaults.single_submit);
  const auto overlap = use("overlap_events", r.ds.aio.overlap_events, defaults.overlap_events);
  const auto backend = r.training("aio_backend", r.config.training.aio_backend);
  if (!to_files) {
    if (backend.value != defaults.backend)
      r.warn(fmt::format("{} = {} has no effect: {}", backend.place, enum_name(backend.value), kNothing));
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
  r.plan.layout.sharding.offload_optimizer.tier.aio = r.plan.layout.sharding.offload_param.tier.aio =
      r.plan.layout.recompute.tier.aio = {
          .block_size = r.note("aio.block_size", block),
          .queue_depth = static_cast<int>(r.note("aio.queue_depth", within(depth, kMostSwapDepth))),
          .intra_op_parallelism =
              static_cast<int>(r.note("aio.intra_op_parallelism", within(threads, kMostSwapThreads))),
          .single_submit = r.note("aio.single_submit", single),
          .overlap_events = r.note("aio.overlap_events", overlap),
          .backend = backend.value};
  r.plan.resolved.push_back({"aio_backend", std::string(enum_name(backend.value)), backend.reason});
}

}  // namespace nought
