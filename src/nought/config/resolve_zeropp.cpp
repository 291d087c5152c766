// What ranks send each other in fewer bits, and what they keep to send less: DeepSpeed's keys of ZeRO++, and rows of
// tokens as codes.
#include "nought/base/host.h"
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

constexpr const char* kZero = "zero_optimization.";

void require_stage_3(const Resolver& r, const Candidate<bool>& key) {
  require<ConfigError>(r.plan.layout.zero_stage == 3,
                       "{} = true takes zero_optimization.stage = 3, where ranks share out parameters, and it is {}: "
                       "raise the stage, or leave the key out",
                       key.place, r.plan.layout.zero_stage);
}

/// How many ranks share out each parameter that is no expert's.
int sharing_ranks(const Resolver& r) { return r.plan.layout.shard_ranks() * r.plan.layout.context_ranks; }

/// Makes the mesh know which ranks share a host.
void know_hosts(Resolver& r) { r.plan.layout.host_ranks = launched_on_host().value_or(r.plan.layout.ranks); }

std::string way_of_gathers(const Resolver& r) {
  const auto levels = Grid(r.plan.layout.grid()).levels(axes_of(Group::parameters));
  if (!levels) return "gathered from all ranks at once";
  return fmt::format("gathered between {} hosts, then among the {} ranks of each", levels->across.front().size(),
                     levels->inside.front().size());
}

/// How many neighbours keep what is gathered; 1: nobody.
int64_t secondary_ranks(Resolver& r) {
  const Setting<int64_t>& setting = r.ds.zero_optimization.zero_hpz_partition_size;
  const auto size = r.deepspeed(std::string(kZero) + "zero_hpz_partition_size", setting.value);
  require_at_least<int64_t>(size, 1);
  if (size.value == 1) return 1;
  require<ConfigError>(
      r.plan.layout.zero_stage == 3,
      "{} = {} takes zero_optimization.stage = 3, where ranks share out parameters, and it is {}: raise "
      "the stage, or leave the key out",
      size.place, size.value, r.plan.layout.zero_stage);
  const int ranks = sharing_ranks(r);
  require<ConfigError>(
      ranks % size.value == 0,
      "{} = {}: {} rank{} that share out parameters cannot be divided by it; the nearest size that can "
      "is {}",
      size.place, size.value, ranks, ranks == 1 ? "" : "s", nearest_divisor(ranks, size.value));
  require<ConfigError>(r.plan.layout.sharding.offload_param.tier.pool != Pool::file,
                       "{} = {}: it keeps in memory what zero_optimization.offload_param keeps in files: choose one of "
                       "the two",
                       size.place, size.value);
  if (size.value < ranks) return size.value;
  r.warn(
      fmt::format("{} = {} has no effect: they are all ranks that share out parameters, and would keep between them "
                  "what they have already",
                  size.place, size.value));
  return 1;
}

std::string hpz_reason(const Resolver& r, int64_t size) {
  const Grid grid(r.plan.layout.grid());
  const bool inside = grid.inside_hosts(grid.neighbours(axes_of(Group::parameters), static_cast<int>(size)));
  const auto key = r.deepspeed(std::string(kZero) + "zero_hpz_partition_size", size);
  return fmt::format("{}; neighbours keep what the first gather of a step brings, {}", key.reason,
                     inside ? "on one host" : "on several hosts, as LOCAL_WORLD_SIZE says");
}

void resolve_quantized_gradients(Resolver& r, const Candidate<bool>& gradients) {
  const auto bits = r.training("quantized_gradient_bits", r.config.training.codes.quantized_gradient_bits);
  const auto idle = [&](const std::string& place) {
    r.warn(fmt::format("{} has no effect without zero_optimization.zero_quantized_gradients", place));
  };
  const DsLoco& loco = r.ds.zero_optimization.zeropp_loco_param;
  const bool wants_feedback = loco.err_beta.given || loco.reset_T.given;
  const std::string loco_path = std::string(kZero) + "zeropp_loco_param";
  if (!gradients.value) {
    if (bits.given) idle(bits.place);
    if (wants_feedback) idle(r.origins.place("deepspeed." + loco_path));
    return;
  }
  require<ConfigError>(bits.value == 4 || bits.value == 8 || bits.value == 16 || bits.value == 32,
                       "{} = {}: expected 4 or 8 (codes with scales), 16 (bf16) or 32 (fp32)", bits.place, bits.value);
  r.plan.layout.sharding.codes.gradient_bits = static_cast<int>(bits.value);
  if (r.ds.communication_data_type.given)
    r.warn(fmt::format("{} has no effect: {} sends {} bits of each gradient",
                       r.origins.place("deepspeed.communication_data_type"), gradients.place, bits.value));
  const auto levels = Grid(r.plan.layout.grid()).levels(axes_of(Group::parameters));
  const std::string way =
      levels ? fmt::format("added among the {} ranks of each host, then between {} hosts",
                           levels->inside.front().size(), levels->across.front().size())
             : fmt::format("one hop between all {} ranks, which do not lie on several hosts alike", sharing_ranks(r));
  r.plan.resolved.push_back(
      {"zero_quantized_gradients", fmt::format("{} bits", bits.value), gradients.reason + "; " + way});
  if (!wants_feedback) return;
  const auto beta = r.section_value("deepspeed." + loco_path + ".err_beta", loco.err_beta);
  const auto reset = r.section_value("deepspeed." + loco_path + ".reset_T", loco.reset_T);
  require_fraction(beta);
  require_at_least<int64_t>(reset, 1);
  r.plan.layout.sharding.codes.feedback = ErrorFeedback{.beta = r.note("zeropp_loco_param.err_beta", beta),
                                                        .reset = r.note("zeropp_loco_param.reset_T", reset)};
}

}  // namespace

void resolve_zeropp(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  const auto key = [&](const char* name, const Setting<bool>& setting) {
    auto candidate = r.deepspeed(std::string(kZero) + name, setting.value);
    if (candidate.value) require_stage_3(r, candidate);
    return candidate;
  };
  auto weights = key("zero_quantized_weights", zero.zero_quantized_weights),
       gradients = key("zero_quantized_gradients", zero.zero_quantized_gradients);
  const int64_t kept = secondary_ranks(r);
  if (weights.value || gradients.value || kept > 1) know_hosts(r);
  const int ranks = sharing_ranks(r);
  for (Candidate<bool>* each : {&weights, &gradients})
    if (each->value && ranks == 1) {
      r.warn(fmt::format("{} has no effect: one rank has all parameters", each->place));
      each->value = false;
    }
  if (weights.value) {
    r.plan.layout.sharding.codes.weight_bits = 8;
    r.plan.resolved.push_back({"zero_quantized_weights", "8 bits", weights.reason + "; " + way_of_gathers(r)});
  }
  if (kept > 1) {
    r.plan.layout.secondary = static_cast<int>(kept);
    r.plan.resolved.push_back({"zero_hpz_partition_size", fmt::format("{}", kept), hpz_reason(r, kept)});
  }
  resolve_quantized_gradients(r, gradients);
}

void resolve_quantized_frozen(Resolver& r) {
  const auto codes = r.deepspeed(std::string(kZero) + "zero_quantized_nontrainable_weights",
                                 r.ds.zero_optimization.zero_quantized_nontrainable_weights.value);
  if (!codes.value) return;
  require_stage_3(r, codes);
  if (r.plan.layout.freezing.empty() && !r.plan.adapts())
    return r.warn(fmt::format("{} has no effect: nothing is frozen (training.freeze)", codes.place));
  r.plan.layout.freezing.codes = WeightCodes{};
  r.plan.resolved.push_back({"zero_quantized_nontrainable_weights", "true",
                             codes.reason + "; matrices and tables that are frozen are kept quantized to 8 bits"});
}

void resolve_quantized_dispatch(Resolver& r) {
  const auto codes = r.training("moe_quantized_dispatch", r.config.training.codes.moe_quantized_dispatch);
  if (!codes.value) return;
  if (r.plan.layout.expert_ranks == 1)
    return r.warn(
        fmt::format("{} has no effect: no rank has experts that others have not (ep_size is 1)", codes.place));
  r.plan.moe_quantized_dispatch = r.note("moe_quantized_dispatch", codes);
}

}  // namespace nought
