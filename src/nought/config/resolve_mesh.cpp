// The axes of the mesh: which ranks share matrices, which read different samples, and which hold different experts.
#include "nought/config/resolver.h"

namespace nought {

namespace {

/// The size nearest to `wanted` that divides `total`, the smaller one of two.
int64_t nearest_divisor(int64_t total, int64_t wanted) {
  int64_t best = 1;
  for (int64_t size = 1; size <= total; ++size)
    if (total % size == 0 && std::abs(size - wanted) < std::abs(best - wanted)) best = size;
  return best;
}

/// ConfigError for a size that two places give differently.
void require_equal(const Candidate<int64_t>& deepspeeds, const Candidate<int64_t>& own) {
  require<ConfigError>(!own.given || own.value == deepspeeds.value,
                       "{} = {} contradicts {} = {}: make them equal, or remove one", deepspeeds.place,
                       deepspeeds.value, own.place, own.value);
}

}  // namespace

void Resolver::refuse_axes() const {
  const ParallelismArgs& args = config_.training.parallelism_config;
  const auto only_one = [&](const char* key, const Setting<int64_t>& setting, std::string_view what,
                            std::string_view instead) {
    const auto size = training(std::string("parallelism_config.") + key, setting);
    require<ConfigError>(size.value == 1, "{} = {}: {} not available: write 1{}", size.place, size.value, what,
                         instead);
  };
  constexpr std::string_view kFewerActivations =
      "; tp_size with sequence_parallel, or training.recompute, leaves a rank fewer activations";
  only_one("dp_replicate_size", args.dp_replicate_size, "replicas of a sharded model are",
           "; dp_shard_size ranks share out what the ZeRO stage shards, at stage 0 nothing");
  only_one("cp_size", args.cp_size, "context parallelism is", kFewerActivations);
  only_one("sp_size", args.sp_size, "Ulysses is", kFewerActivations);
}

Candidate<int64_t> Resolver::tensor_size() const {
  const auto own = training("parallelism_config.tp_size", config_.training.parallelism_config.tp_size);
  const Setting<int64_t>& deepspeeds = ds_.tensor_parallel.autotp_size;
  if (!deepspeeds.given) return own;
  const auto size = deepspeed("tensor_parallel.autotp_size", deepspeeds.value == 0 ? 1 : deepspeeds.value);
  require_equal(size, own);
  return size;
}

Candidate<int64_t> Resolver::expert_size() {
  const auto own = training("parallelism_config.ep_size", config_.training.parallelism_config.ep_size);
  const DsExpertParallel& section = ds_.expert_parallel;
  if (!section.enabled.value) {
    const auto idle = [&](const char* key, const Setting<int64_t>& setting) {
      if (setting.given && setting.value != 1)
        warn(fmt::format("{} = {} has no effect: expert_parallel.enabled is not true",
                         origins_.place(std::string("deepspeed.expert_parallel.") + key), setting.value));
    };
    idle("autoep_size", section.autoep_size);
    idle("expert_tensor_parallel_size", section.expert_tensor_parallel_size);
    return own;
  }
  if (!section.autoep_size.given) return own;
  const auto size = deepspeed("expert_parallel.autoep_size", section.autoep_size.value);
  require_equal(size, own);
  return size;
}

void Resolver::check_expert_tensor_size(int64_t tensor) const {
  const DsExpertParallel& section = ds_.expert_parallel;
  const Setting<int64_t>& given = section.expert_tensor_parallel_size;
  if (!section.enabled.value || !given.given) return;
  const auto size = deepspeed("expert_parallel.expert_tensor_parallel_size", given.value);
  require<ConfigError>(size.value == tensor,
                       "{} = {}: experts are cut over the {} rank{} of tp_size, as all other matrices: write {}, or "
                       "leave it out",
                       size.place, size.value, tensor, tensor == 1 ? "" : "s", tensor);
}

bool Resolver::resolve_sequence_parallel(int64_t tensor) {
  const auto slices =
      training("parallelism_config.sequence_parallel", config_.training.parallelism_config.sequence_parallel);
  if (!slices.value) return false;
  const int64_t ranks = plan_.world_size;
  int64_t smallest = 2;
  while (smallest < ranks && ranks % smallest != 0) ++smallest;
  require<ConfigError>(tensor > 1,
                       "{} = true: it shares out the tokens between the ranks of tp_size, which is 1: {}leave it out",
                       slices.place, ranks > 1 ? fmt::format("write tp_size {}, or ", smallest) : "");
  return note("parallelism_config.sequence_parallel", slices);
}

void Resolver::resolve_pipeline(int64_t tensor) {
  const ParallelismArgs& args = config_.training.parallelism_config;
  const auto size = training("parallelism_config.pp_size", args.pp_size);
  require_at_least<int64_t>(size, 1);
  const int64_t ranks = plan_.world_size / tensor;
  require<ConfigError>(ranks % size.value == 0,
                       "{} = {}: {} rank{} cannot be divided by it; the nearest size that can is {}", size.place,
                       size.value, ranks, ranks == 1 ? "" : "s", nearest_divisor(ranks, size.value));
  const auto schedule = training("parallelism_config.pipeline_parallel_schedule", args.pipeline_parallel_schedule);
  Pipeline pipeline{.schedule = parse_pipeline_schedule(schedule.value), .ranks = size.value, .chunks = 1};
  const int64_t usual = default_chunks(pipeline.schedule);
  const auto chunks = training("parallelism_config.virtual_pipeline_size", args.virtual_pipeline_size);
  pipeline.chunks = chunks.given ? chunks.value : usual;
  check_chunks(pipeline);
  if (size.value == 1) {
    if (schedule.given || chunks.given)
      warn(fmt::format("{} has no effect: pp_size is 1", schedule.given ? schedule.place : chunks.place));
    return;
  }
  plan_.pipeline = pipeline;
  note("parallelism_config.pp_size", size);
  note("parallelism_config.pipeline_parallel_schedule", schedule);
}

void Resolver::check_pipeline() const {
  if (plan_.pipeline.ranks > 1) check_micro_batches(plan_.pipeline, plan_.accumulation);
}

void Resolver::resolve_mesh() {
  refuse_axes();
  const auto tensor = tensor_size(), expert = expert_size();
  const int64_t ranks = plan_.world_size;
  require_at_least<int64_t>(tensor, 1);
  require_at_least<int64_t>(expert, 1);
  require<ConfigError>(ranks % tensor.value == 0,
                       "{} = {}: {} rank{} cannot be divided by it; the nearest size that can is {}", tensor.place,
                       tensor.value, ranks, ranks == 1 ? "" : "s", nearest_divisor(ranks, tensor.value));
  check_expert_tensor_size(tensor.value);
  if (tensor.value > 1) note("parallelism_config.tp_size", tensor);
  resolve_pipeline(tensor.value);
  const int64_t stages = plan_.pipeline.ranks;
  plan_.sequence_parallel = resolve_sequence_parallel(tensor.value);
  const auto shard = training("parallelism_config.dp_shard_size", config_.training.parallelism_config.dp_shard_size);
  const int64_t data = ranks / tensor.value / stages;
  require<ConfigError>(!shard.given || shard.value == data,
                       "{} = {}: the product of the sizes of parallelism_config must be the number of ranks, {}: with "
                       "tp_size {}{} write {}, or leave it out",
                       shard.place, shard.value, ranks, tensor.value,
                       stages > 1 ? fmt::format(" and pp_size {}", stages) : "", data);
  require<ConfigError>(data % expert.value == 0,
                       "{} = {}: {} data-parallel rank{} cannot be divided by it; the nearest size that can is {}",
                       expert.place, expert.value, data, data == 1 ? "" : "s", nearest_divisor(data, expert.value));
  if (!shard.given && tensor.value == 1 && expert.value == 1 && stages == 1) return;
  const Candidate<int64_t> left{data, true, shard.place,
                                shard.given ? shard.reason
                                            : fmt::format("world_size{}{}", tensor.value > 1 ? " / tp_size" : "",
                                                          stages > 1 ? " / pp_size" : "")};
  plan_.mesh = GridSizes{.shard = static_cast<int>(note("parallelism_config.dp_shard_size", left)),
                         .tensor = static_cast<int>(tensor.value),
                         .pipeline = static_cast<int>(stages),
                         .expert = static_cast<int>(expert.value),
                         .expert_tensor = static_cast<int>(tensor.value)};
  if (expert.value > 1) note("parallelism_config.ep_size", expert);
}

}  // namespace nought
