// What ranks send each other in fewer bits, and what they keep to send less: DeepSpeed's keys of ZeRO++, and rows of
// tokens as codes.
#include "nought/base/host.h"
#include "nought/config/resolver.h"

namespace nought {

namespace {

constexpr const char* kZero = "zero_optimization.";

}  // namespace

void Resolver::require_stage_3(const Candidate<bool>& key) const {
  require<ConfigError>(plan_.layout.zero_stage == 3,
                       "{} = true takes zero_optimization.stage = 3, where ranks share out parameters, and it is {}: "
                       "raise the stage, or leave the key out",
                       key.place, plan_.layout.zero_stage);
}

void Resolver::resolve_zeropp() {
  const DsZero& zero = ds_.zero_optimization;
  const auto key = [&](const char* name, const Setting<bool>& setting) {
    auto candidate = deepspeed(std::string(kZero) + name, setting.value);
    if (candidate.value) require_stage_3(candidate);
    return candidate;
  };
  auto weights = key("zero_quantized_weights", zero.zero_quantized_weights),
       gradients = key("zero_quantized_gradients", zero.zero_quantized_gradients);
  const int64_t kept = secondary_ranks();
  if (weights.value || gradients.value || kept > 1) know_hosts();
  const int ranks = sharing_ranks();
  for (Candidate<bool>* each : {&weights, &gradients})
    if (each->value && ranks == 1) {
      warn(fmt::format("{} has no effect: one rank has all parameters", each->place));
      each->value = false;
    }
  if (weights.value) {
    plan_.layout.sharding.codes.weight_bits = 8;
    plan_.resolved.push_back({"zero_quantized_weights", "8 bits", weights.reason + "; " + way_of_gathers()});
  }
  if (kept > 1) {
    plan_.layout.secondary = static_cast<int>(kept);
    plan_.resolved.push_back({"zero_hpz_partition_size", fmt::format("{}", kept), hpz_reason(kept)});
  }
  resolve_quantized_gradients(gradients);
}

int Resolver::sharing_ranks() const { return plan_.layout.shard_ranks() * plan_.layout.context_ranks; }

void Resolver::know_hosts() { plan_.layout.host_ranks = launched_on_host().value_or(plan_.layout.ranks); }

std::string Resolver::way_of_gathers() const {
  const auto levels = Grid(plan_.layout.grid()).levels(axes_of(Group::parameters));
  if (!levels) return "gathered from all ranks at once";
  return fmt::format("gathered between {} hosts, then among the {} ranks of each", levels->across.front().size(),
                     levels->inside.front().size());
}

int64_t Resolver::secondary_ranks() {
  const Setting<int64_t>& setting = ds_.zero_optimization.zero_hpz_partition_size;
  const auto size = deepspeed(std::string(kZero) + "zero_hpz_partition_size", setting.value);
  require_at_least<int64_t>(size, 1);
  if (size.value == 1) return 1;
  require<ConfigError>(
      plan_.layout.zero_stage == 3,
      "{} = {} takes zero_optimization.stage = 3, where ranks share out parameters, and it is {}: raise "
      "the stage, or leave the key out",
      size.place, size.value, plan_.layout.zero_stage);
  const int ranks = sharing_ranks();
  require<ConfigError>(
      ranks % size.value == 0,
      "{} = {}: {} rank{} that share out parameters cannot be divided by it; the nearest size that can "
      "is {}",
      size.place, size.value, ranks, ranks == 1 ? "" : "s", nearest_divisor(ranks, size.value));
  require<ConfigError>(plan_.layout.sharding.offload_param.tier.pool != Pool::file,
                       "{} = {}: it keeps in memory what zero_optimization.offload_param keeps in files: choose one of "
                       "the two",
                       size.place, size.value);
  if (size.value < ranks) return size.value;
  warn(
      fmt::format("{} = {} has no effect: they are all ranks that share out parameters, and would keep between them "
                  "what they have already",
                  size.place, size.value));
  return 1;
}

std::string Resolver::hpz_reason(int64_t size) const {
  const Grid grid(plan_.layout.grid());
  const bool inside = grid.inside_hosts(grid.neighbours(axes_of(Group::parameters), static_cast<int>(size)));
  const auto key = deepspeed(std::string(kZero) + "zero_hpz_partition_size", size);
  return fmt::format("{}; neighbours keep what the first gather of a step brings, {}", key.reason,
                     inside ? "on one host" : "on several hosts, as LOCAL_WORLD_SIZE says");
}

void Resolver::resolve_quantized_gradients(const Candidate<bool>& gradients) {
  const auto bits = training("quantized_gradient_bits", config_.training.codes.quantized_gradient_bits);
  const auto idle = [&](const std::string& place) {
    warn(fmt::format("{} has no effect without zero_optimization.zero_quantized_gradients", place));
  };
  const DsLoco& loco = ds_.zero_optimization.zeropp_loco_param;
  const bool wants_feedback = loco.err_beta.given || loco.reset_T.given;
  const std::string loco_path = std::string(kZero) + "zeropp_loco_param";
  if (!gradients.value) {
    if (bits.given) idle(bits.place);
    if (wants_feedback) idle(origins_.place("deepspeed." + loco_path));
    return;
  }
  require<ConfigError>(bits.value == 4 || bits.value == 8 || bits.value == 16 || bits.value == 32,
                       "{} = {}: expected 4 or 8 (codes with scales), 16 (bf16) or 32 (fp32)", bits.place, bits.value);
  plan_.layout.sharding.codes.gradient_bits = static_cast<int>(bits.value);
  if (ds_.communication_data_type.given)
    warn(fmt::format("{} has no effect: {} sends {} bits of each gradient",
                     origins_.place("deepspeed.communication_data_type"), gradients.place, bits.value));
  const auto levels = Grid(plan_.layout.grid()).levels(axes_of(Group::parameters));
  const std::string way =
      levels ? fmt::format("added among the {} ranks of each host, then between {} hosts",
                           levels->inside.front().size(), levels->across.front().size())
             : fmt::format("one hop between all {} ranks, which do not lie on several hosts alike", sharing_ranks());
  plan_.resolved.push_back(
      {"zero_quantized_gradients", fmt::format("{} bits", bits.value), gradients.reason + "; " + way});
  if (!wants_feedback) return;
  const auto beta = section_value("deepspeed." + loco_path + ".err_beta", loco.err_beta);
  const auto reset = section_value("deepspeed." + loco_path + ".reset_T", loco.reset_T);
  require_fraction(beta);
  require_at_least<int64_t>(reset, 1);
  plan_.layout.sharding.codes.feedback = ErrorFeedback{.beta = note("zeropp_loco_param.err_beta", beta),
                                                       .reset = note("zeropp_loco_param.reset_T", reset)};
}

void Resolver::resolve_frozen_codes() {
  const auto codes = deepspeed(std::string(kZero) + "zero_quantized_nontrainable_weights",
                               ds_.zero_optimization.zero_quantized_nontrainable_weights.value);
  if (!codes.value) return;
  require_stage_3(codes);
  if (plan_.layout.freezing.empty())
    return warn(fmt::format("{} has no effect: nothing is frozen (training.freeze)", codes.place));
  plan_.layout.freezing.codes = true;
  plan_.resolved.push_back({"zero_quantized_nontrainable_weights", "true",
                            codes.reason + "; matrices and tables that are frozen are kept as 8-bit codes"});
}

void Resolver::resolve_token_codes() {
  const auto codes = training("moe_quantized_dispatch", config_.training.codes.moe_quantized_dispatch);
  if (!codes.value) return;
  if (plan_.layout.expert_ranks == 1)
    return warn(fmt::format("{} has no effect: no rank has experts that others have not (ep_size is 1)", codes.place));
  plan_.moe_quantized_dispatch = note("moe_quantized_dispatch", codes);
}

}  // namespace nought
