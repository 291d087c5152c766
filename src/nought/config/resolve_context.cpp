// Ranks that share each sequence: context parallelism in accelerate's words, Ulysses in accelerate's and DeepSpeed's.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// not given: "auto".
std::optional<ContextMethod> parse_method(const Candidate<std::string>& type) {
  if (type.value == "auto") return std::nullopt;
  for (const ContextMethod each : {ContextMethod::ring, ContextMethod::gather})
    if (type.value == name_of(each)) return each;
  fail<ConfigError>("{} = \"{}\": expected p2p, all_gather or auto{}", type.place, one_line(type.value),
                    type.value.starts_with("a2a") ? "; Ulysses is sp_size" : "");
}

/// How many ranks exchange tokens for heads.
Candidate<int64_t> ulysses_size(const Resolver& r) {
  const auto own = r.training("parallelism_config.sp_size", r.config.training.parallelism_config.sp_size);
  if (!r.ds.sequence_parallel_size.given) return own;
  const auto size = r.deepspeed("sequence_parallel_size", r.ds.sequence_parallel_size.value);
  require_equal(size, own);
  return size;
}

}  // namespace

int64_t resolve_context(Resolver& r, int64_t ranks) {
  const ParallelismArgs& args = r.config.training.parallelism_config;
  const auto cut = r.training("parallelism_config.cp_size", args.cp_size), spread = ulysses_size(r);
  const auto type = r.training("parallelism_config.cp_comm_type", args.cp_comm_type);
  require_at_least<int64_t>(cut, 1);
  require_at_least<int64_t>(spread, 1);
  require<ConfigError>(cut.value == 1 || spread.value == 1,
                       "{} = {} and {} = {}: sequences are shared in one of the two ways: write 1 for one of them",
                       cut.place, cut.value, spread.place, spread.value);
  const std::optional<ContextMethod> method = parse_method(type);
  const bool ulysses = spread.value > 1;
  const auto& size = ulysses ? spread : cut;
  require<ConfigError>(
      ranks % size.value == 0, "{} = {}: {} rank{}{} cannot be divided by it; the nearest size that can is {}",
      size.place, size.value, ranks, ranks == 1 ? "" : "s", what_left(r, ranks), nearest_divisor(ranks, size.value));
  if (type.given && method && cut.value == 1) r.warn(fmt::format("{} has no effect: cp_size is 1", type.place));
  if (size.value == 1) return 1;
  r.plan.layout.context_method = ulysses ? ContextMethod::heads : method;
  r.note(ulysses ? "parallelism_config.sp_size" : "parallelism_config.cp_size", size);
  if (!ulysses) r.note("parallelism_config.cp_comm_type", type);
  return size.value;
}

void check_context(const Resolver& r) {
  const int64_t ranks = r.plan.layout.context_ranks, length = r.plan.layout.seq_length;
  if (ranks == 1 || length == 0) return;
  const char* key = r.plan.layout.context_method == ContextMethod::heads ? "sp_size" : "cp_size";
  require<ConfigError>(length >= 2 * ranks,
                       "data.seq_length = {}: each of the {} ranks of {} needs 2 tokens of a sequence: write {} or "
                       "more, or {} {}",
                       length, ranks, key, 2 * ranks, key, nearest_divisor(ranks, std::max<int64_t>(length / 2, 1)));
}

}  // namespace nought
