// The axes of the mesh: which ranks share matrices, which read different samples, and which hold different experts.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// How many ranks share each matrix.
Candidate<int64_t> tensor_size(const Resolver& r) {
  const auto own = r.training("parallelism_config.tp_size", r.config.training.parallelism_config.tp_size);
  const Setting<int64_t>& deepspeeds = r.ds.tensor_parallel.autotp_size;
  if (!deepspeeds.given) return own;
  const auto size = r.deepspeed("tensor_parallel.autotp_size", deepspeeds.value == 0 ? 1 : deepspeeds.value);
  require_equal(size, own);
  return size;
}

/// How many ranks hold different experts.
Candidate<int64_t> expert_size(Resolver& r) {
  const auto own = r.training("parallelism_config.ep_size", r.config.training.parallelism_config.ep_size);
  const DsExpertParallel& section = r.ds.expert_parallel;
  if (!section.enabled.value) {
    const auto idle = [&](const char* key, const Setting<int64_t>& setting) {
      if (setting.given && setting.value != 1)
        r.warn(fmt::format("{} = {} has no effect: expert_parallel.enabled is not true",
                           r.origins.place(std::string("deepspeed.expert_parallel.") + key), setting.value));
    };
    idle("autoep_size", section.autoep_size);
    idle("expert_tensor_parallel_size", section.expert_tensor_parallel_size);
    return own;
  }
  if (!section.autoep_size.given) return own;
  const auto size = r.deepspeed("expert_parallel.autoep_size", section.autoep_size.value);
  require_equal(size, own);
  return size;
}

/// ConfigError unless experts are cut over as many ranks as all other matrices.
void check_expert_tensor_size(const Resolver& r, int64_t tensor) {
  const DsExpertParallel& section = r.ds.expert_parallel;
  const Setting<int64_t>& given = section.expert_tensor_parallel_size;
  if (!section.enabled.value || !given.given) return;
  const auto size = r.deepspeed("expert_parallel.expert_tensor_parallel_size", given.value);
  require<ConfigError>(size.value == tensor,
                       "{} = {}: experts are cut over the {} rank{} of tp_size, as all other matrices: write {}, or "
                       "leave it out",
                       size.place, size.value, tensor, tensor == 1 ? "" : "s", tensor);
}

bool resolve_sequence_parallel(Resolver& r, int64_t tensor) {
  const auto slices =
      r.training("parallelism_config.sequence_parallel", r.config.training.parallelism_config.sequence_parallel);
  if (!slices.value) return false;
  const int64_t ranks = r.plan.layout.ranks;
  int64_t smallest = 2;
  while (smallest < ranks && ranks % smallest != 0) ++smallest;
  require<ConfigError>(tensor > 1,
                       "{} = true: it shares out the tokens between the ranks of tp_size, which is 1: {}leave it out",
                       slices.place, ranks > 1 ? fmt::format("write tp_size {}, or ", smallest) : "");
  return r.note("parallelism_config.sequence_parallel", slices);
}

/// How many ranks a pipeline has, as either side says.
Candidate<int64_t> pipeline_size(const Resolver& r) {
  const auto own = r.training("parallelism_config.pp_size", r.config.training.parallelism_config.pp_size);
  const Auto<int64_t>& deepspeeds = r.ds.pipeline.stages;
  if (deepspeeds.automatic() || !deepspeeds.given()) return own;
  const auto size = r.deepspeed("pipeline.stages", deepspeeds.value);
  require_equal(size, own);
  return size;
}

/// What of the ranks hold different layers, when so many share each matrix.
void resolve_pipeline(Resolver& r, int64_t tensor) {
  const ParallelismArgs& args = r.config.training.parallelism_config;
  const auto size = pipeline_size(r);
  require_at_least<int64_t>(size, 1);
  const int64_t ranks = r.plan.layout.ranks / tensor;
  require<ConfigError>(
      ranks % size.value == 0, "{} = {}: {} rank{}{} cannot be divided by it; the nearest size that can is {}",
      size.place, size.value, ranks, ranks == 1 ? "" : "s", what_left(r, ranks), nearest_divisor(ranks, size.value));
  const auto schedule = r.training("parallelism_config.pipeline_parallel_schedule", args.pipeline_parallel_schedule);
  Pipeline pipeline{.schedule = parse_pipeline_schedule(schedule.value), .ranks = size.value, .chunks = 1};
  const int64_t usual = default_chunks(pipeline.schedule);
  const auto chunks = r.training("parallelism_config.virtual_pipeline_size", args.virtual_pipeline_size);
  pipeline.chunks = chunks.given ? chunks.value : usual;
  check_chunks(pipeline);
  if (size.value == 1) {
    resolve_partition(r, 1);  // it has no effect either
    if (schedule.given || chunks.given)
      r.warn(fmt::format("{} has no effect: pp_size is 1", schedule.given ? schedule.place : chunks.place));
    return;
  }
  r.plan.layout.pipeline = pipeline;
  r.note("parallelism_config.pp_size", size);
  r.note("parallelism_config.pipeline_parallel_schedule", schedule);
  r.plan.layout.pipeline.partition = resolve_partition(r, size.value);
}

}  // namespace

std::string what_left(const Resolver& r, int64_t ranks) {
  const int64_t world = r.plan.layout.ranks, stages = r.plan.layout.pipeline.ranks, tensor = world / ranks / stages;
  if (ranks == world) return "";
  return fmt::format(", left of {} by{}{}{},", world, tensor > 1 ? fmt::format(" tp_size {}", tensor) : "",
                     tensor > 1 && stages > 1 ? " and" : "", stages > 1 ? fmt::format(" pp_size {}", stages) : "");
}

void check_pipeline(const Resolver& r) {
  if (r.plan.layout.pipeline.ranks > 1) check_micro_batches(r.plan.layout.pipeline, r.plan.layout.accumulation);
}

void resolve_mesh(Resolver& r) {
  const auto tensor = tensor_size(r), expert = expert_size(r);
  const int64_t ranks = r.plan.layout.ranks;
  require_at_least<int64_t>(tensor, 1);
  require_at_least<int64_t>(expert, 1);
  require<ConfigError>(ranks % tensor.value == 0,
                       "{} = {}: {} rank{} cannot be divided by it; the nearest size that can is {}", tensor.place,
                       tensor.value, ranks, ranks == 1 ? "" : "s", nearest_divisor(ranks, tensor.value));
  check_expert_tensor_size(r, tensor.value);
  if (tensor.value > 1) r.note("parallelism_config.tp_size", tensor);
  resolve_pipeline(r, tensor.value);
  const int64_t stages = r.plan.layout.pipeline.ranks;
  r.plan.layout.sequence_parallel = resolve_sequence_parallel(r, tensor.value);
  const int64_t context = resolve_context(r, ranks / tensor.value / stages);
  const auto shard = r.training("parallelism_config.dp_shard_size", r.config.training.parallelism_config.dp_shard_size);
  const int64_t data = ranks / tensor.value / stages / context;
  const bool ulysses = r.plan.layout.context_method == ContextMethod::heads;
  const auto replicas = replicate_size(r, data);
  const int64_t sharing = data / replicas.value;
  require<ConfigError>(!shard.given || shard.value == sharing,
                       "{} = {}: the product of the sizes of parallelism_config must be the number of ranks, {}: with "
                       "tp_size {}{}{}{} write {}, or leave it out{}",
                       shard.place, shard.value, ranks, tensor.value,
                       context > 1 ? fmt::format(" and {} {}", ulysses ? "sp_size" : "cp_size", context) : "",
                       replicas.value > 1 ? fmt::format(" and dp_replicate_size {}", replicas.value) : "",
                       stages > 1 ? fmt::format(" and pp_size {}", stages) : "", sharing,
                       shard.value > 0 && shard.value < data && data % shard.value == 0
                           ? fmt::format("; for {0} replicas write dp_replicate_size {0}", data / shard.value)
                           : "");
  const int64_t tokens = sharing * context;  // ranks of a replica that have different tokens
  require<ConfigError>(tokens % expert.value == 0,
                       "{} = {}: {} data-parallel rank{}{} cannot be divided by it; the nearest size that can is {}",
                       expert.place, expert.value, tokens, tokens == 1 ? "" : "s",
                       replicas.value > 1 ? " of a replica" : "", nearest_divisor(tokens, expert.value));
  r.plan.layout.replicas = static_cast<int>(replicas.value);
  r.plan.layout.tensor_ranks = static_cast<int>(tensor.value);
  r.plan.layout.context_ranks = static_cast<int>(context);
  r.plan.layout.expert_ranks = static_cast<int>(expert.value);
  const bool says_shards = shard.given || mics_shard_size(r, data);
  if (!says_shards && replicas.value == 1 && tensor.value == 1 && expert.value == 1 && stages == 1 && context == 1)
    return resolve_hierarchical_gather(r);
  if (replicas.value > 1) r.note("parallelism_config.dp_replicate_size", replicas);
  const Candidate<int64_t> left{
      sharing, true, shard.place,
      shard.given ? shard.reason
                  : fmt::format("world_size{}{}{}{}", tensor.value > 1 ? " / tp_size" : "",
                                context == 1 ? ""
                                : ulysses    ? " / sp_size"
                                             : " / cp_size",
                                stages > 1 ? " / pp_size" : "", replicas.value > 1 ? " / dp_replicate_size" : "")};
  r.note("parallelism_config.dp_shard_size", left);
  if (expert.value > 1) r.note("parallelism_config.ep_size", expert);
  resolve_hierarchical_gather(r);
}

}  // namespace nought
