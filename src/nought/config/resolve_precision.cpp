// What a run computes, accumulates, communicates and keeps its numbers in.
#include "nought/config/resolve_steps.h"
#include "nought/kernels/isa.h"

namespace nought {

namespace {

/// "auto" counts as not given: DeepSpeed's key may say otherwise, and fp16 excludes it.
Candidate<bool> training_bf16(const Resolver& r) {
  const Auto<bool>& bf16 = r.config.training.bf16;
  const auto key = r.section_value("training.bf16", bf16.value, bf16.given() || bf16.automatic());
  if (!bf16.automatic()) return key;
  if (r.config.training.fp16.value) return {false, false, key.place, key.reason + ": auto <- training.fp16"};
  if (r.ds.fp16.enabled.value) return {false, false, key.place, key.reason + ": auto <- deepspeed.fp16.enabled"};
  return {r.automatic_bf16.value, false, key.place, fmt::format("{}: auto <- {}", key.reason, r.automatic_bf16.reason)};
}

void resolve_fp8(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto scaling = r.training("fp8", t.fp8);
  const auto history = r.training("fp8_amax_history", t.fp8_amax_history);
  const auto margin = r.training("fp8_margin", t.fp8_margin);
  r.plan.resolved.push_back({"fp8", std::string(name_of(scaling.value)), scaling.reason});
  if (scaling.value == Fp8Scaling::none) return;
  require<ConfigError>(r.plan.layout.sharding.dtype == DType::bf16,
                       "{} = \"{}\": values of 8 bits are multiplied in bf16, but the run is in "
                       "{}; write training.bf16 = true",
                       scaling.place, name_of(scaling.value), name_of(r.plan.layout.sharding.dtype));
  require_at_least<int64_t>(history, 1);
  require<ConfigError>(-16 <= margin.value && margin.value <= 16, "{}: expected -16 to 16, got {}", margin.place,
                       margin.value);
  r.plan.layout.fp8 = {.scaling = scaling.value, .history = history.value, .margin = static_cast<int>(margin.value)};
  if (scaling.value == Fp8Scaling::delayed) r.note("fp8_amax_history", history);
  r.note("fp8_margin", margin);
}

void resolve_gradients(Resolver& r) {
  const auto choose = [&](const char* name, const std::string& key, const Setting<DType>& setting, DType fallback,
                          const char* reason) {
    auto choice = r.section_value("deepspeed." + key, setting);
    if (!choice.given) choice = {fallback, false, choice.place, reason};
    r.plan.resolved.push_back({name, std::string(name_of(choice.value)), choice.reason});
    return choice;
  };
  const bool in_tree = virtual_ranks(r).has_value();
  const auto sums = choose("gradient_dtype", "data_types.grad_accum_dtype", r.ds.data_types.grad_accum_dtype,
                           in_tree ? DType::f32 : r.plan.layout.sharding.dtype,
                           in_tree ? "training.virtual_ranks" : "default: the dtype of computation");
  require<ConfigError>(sums.value == DType::f32 || sums.value == r.plan.layout.sharding.dtype,
                       "{} = \"{}\": gradients accumulate in fp32 or in the dtype of computation, which is {}",
                       sums.place, name_of(sums.value), name_of(r.plan.layout.sharding.dtype));
  r.plan.layout.sharding.gradient_dtype = sums.value;
  const auto& spread = r.ds.seq_parallel_communication_data_type;
  const bool is_spread =
      r.plan.layout.context_ranks > 1 && r.plan.layout.context_method == ContextMethod::heads && spread.given;
  const auto wire =
      choose("communication_dtype", is_spread ? "seq_parallel_communication_data_type" : "communication_data_type",
             is_spread ? spread : r.ds.communication_data_type, sums.value, "default: the gradients' dtype");
  if (!is_spread && spread.given && spread.value != DType::f32)
    r.warn(fmt::format("{} has no effect: sp_size is 1",
                       r.origins.place("deepspeed.seq_parallel_communication_data_type")));
  r.plan.layout.sharding.wire_dtype = wire.value;
  if (!wire.given && !in_tree && wire.value != r.plan.layout.sharding.dtype && r.plan.layout.token_ranks() > 1)
    r.warn(
        fmt::format("{} = \"{}\": gradients travel in {} here, where DeepSpeed sends {}; "
                    "communication_data_type = \"{}\" does as it does",
                    sums.place, enum_name(sums.value), enum_name(wire.value), enum_name(r.plan.layout.sharding.dtype),
                    enum_name(r.plan.layout.sharding.dtype)));
  const auto prescale = r.section_value("deepspeed.prescale_gradients", r.ds.prescale_gradients);
  const auto divisor = r.section_value("deepspeed.gradient_predivide_factor", r.ds.gradient_predivide_factor);
  require<ConfigError>(divisor.value > 0, "{}: expected more than 0, got {}", divisor.place, divisor.value);
  if ((prescale.given || divisor.given) && !prescale.value) {
    r.plan.gradient_factor = r.plan.layout.data_ranks() / divisor.value;
    r.plan.resolved.push_back({"gradient_predivide_factor", fmt::format("{:g}", divisor.value), divisor.reason});
  }
}

void resolve_loss_scale(Resolver& r) {
  const DsFp16& fp16 = r.ds.fp16;
  const auto value = [&](const char* key, const auto& setting, auto least) {
    const auto candidate = r.section_value(std::string("deepspeed.fp16.") + key, setting);
    require_at_least<decltype(least)>(candidate, least);
    return candidate;
  };
  Candidate<double> fixed{0, false, "", "default"};
  if (fp16.loss_scale.given()) fixed = r.deepspeed("fp16.loss_scale", fp16.loss_scale.value);
  require_at_least(fixed, 0.0);
  const auto power = value("initial_scale_power", fp16.initial_scale_power, 0);
  const auto least = value("min_loss_scale", fp16.min_loss_scale, 0.0);
  require<ConfigError>(power.value <= 1000, "{}: expected at most 1000, got {}", power.place, power.value);
  r.plan.loss_scale = {.static_scale = fixed.value,
                       .initial_power = power.value,
                       .scale_window = value("loss_scale_window", fp16.loss_scale_window, int64_t{1}).value,
                       .hysteresis = value("hysteresis", fp16.hysteresis, int64_t{1}).value,
                       .consecutive_hysteresis = fp16.consecutive_hysteresis.value,
                       .min_scale = least.value};
  const bool dynamic = fixed.value == 0;
  r.plan.resolved.push_back(
      {"loss_scale", dynamic ? fmt::format("dynamic, from 2^{}", power.value) : fmt::format("{:g}", fixed.value),
       dynamic ? power.reason : fixed.reason});
}

}  // namespace

AutoBf16 bf16_of_cpu() { return {has_bf16_units(), fmt::format("this CPU has {}", describe_bf16_units())}; }

void resolve_precision(Resolver& r) {
  const auto bf16 = r.merge("bf16.enabled", r.ds.bf16.enabled, training_bf16(r));
  const auto fp16 = r.merge("fp16.enabled", r.ds.fp16.enabled, r.training("fp16", r.config.training.fp16));
  require<ConfigError>(!bf16.value || !fp16.value, "{} and {} are both true; choose one", bf16.place, fp16.place);
  r.plan.layout.sharding.dtype = bf16.value ? DType::bf16 : fp16.value ? DType::f16 : DType::f32;
  r.plan.resolved.push_back(
      {"dtype", std::string(name_of(r.plan.layout.sharding.dtype)), fp16.value ? fp16.reason : bf16.reason});
  if (fp16.value) resolve_loss_scale(r);
  resolve_gradients(r);
  resolve_fp8(r);
}

/// Whether 16-bit weights have fp32 ones beside them, and what their states are kept in.
void resolve_masters(Resolver& r) {
  const bool is_bf16 = r.plan.layout.sharding.dtype == DType::bf16,
             is_fp16 = r.plan.layout.sharding.dtype == DType::f16;
  const auto narrow = [&](const char* key, const Setting<bool>& setting, bool used) {
    auto value = r.section_value(std::string("deepspeed.") + key, setting);
    if (value.value && !used)
      r.warn(fmt::format("{} has no effect: the run is in {}", value.place, name_of(r.plan.layout.sharding.dtype)));
    value.value = value.value && used;
    return value;
  };
  const auto bf16 = narrow("bf16.bf16_master_weights_and_grads", r.ds.bf16.bf16_master_weights_and_grads, is_bf16);
  const auto fp16 = narrow("fp16.fp16_master_weights_and_grads", r.ds.fp16.fp16_master_weights_and_grads, is_fp16);
  const auto states = narrow("bf16.bf16_optimizer_states", r.ds.bf16.bf16_optimizer_states, is_bf16);
  if (!is_bf16 && !is_fp16) return;
  const Candidate<bool>& chosen = is_bf16 ? bf16 : fp16;
  require<ConfigError>(!chosen.value || r.plan.layout.sharding.gradient_dtype == r.plan.layout.sharding.dtype,
                       "{} = true contradicts data_types.grad_accum_dtype = \"{}\": leave one of them out",
                       chosen.place, name_of(r.plan.layout.sharding.gradient_dtype));
  require<ConfigError>(!states.value || bf16.value, "{} = true needs bf16.bf16_master_weights_and_grads = true",
                       states.place);
  require<ConfigError>(!states.value || r.plan.layout.sharding.optimizer.state_block == 0,
                       "{} = true contradicts an 8-bit optimizer: choose one of them", states.place);
  r.plan.layout.sharding.optimizer.master_weights = !chosen.value;
  if (states.value) r.plan.layout.sharding.optimizer.state_dtype = DType::bf16;
  r.plan.resolved.push_back({"master_weights",
                             chosen.value ? fmt::format("none: {}", name_of(r.plan.layout.sharding.dtype)) : "f32",
                             chosen.reason});
  r.plan.resolved.push_back({"optimizer_states",
                             r.plan.layout.sharding.optimizer.state_block > 0
                                 ? "8 bits"
                                 : std::string(name_of(r.plan.layout.sharding.optimizer.state_dtype)),
                             states.value ? states.reason : "of the optimizer"});
  if (!chosen.value) return;
  const auto rounding = r.training("stochastic_rounding", r.config.training.stochastic_rounding);
  r.plan.layout.sharding.optimizer.stochastic_rounding = r.note("stochastic_rounding", rounding);
}

}  // namespace nought
