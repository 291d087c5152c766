// compression_training.weight_quantization: layers that compute with weights of few bits.
#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

constexpr const char* kWeightSection = "compression_training.weight_quantization.";

template <class T>
Candidate<T> shared(const Resolver& r, const char* key, const Setting<T>& setting) {
  return r.section_value(fmt::format("deepspeed.{}shared_parameters.{}", kWeightSection, key), setting);
}

/// Which of two words the key has.
bool is_second(const Candidate<std::string>& choice, std::string_view first, std::string_view second) {
  require<ConfigError>(choice.value == first || choice.value == second, "{} = \"{}\": expected \"{}\" or \"{}\"",
                       choice.place, choice.value, first, second);
  return choice.value == second;
}

int bits_of(const Setting<int64_t>& setting, const std::string& place) {
  constexpr int64_t kMost = 16;
  require<ConfigError>(setting.given, "{} is missing: expected 1 to {} bits", place, kMost);
  require<ConfigError>(1 <= setting.value && setting.value <= kMost, "{} = {}: expected 1 to {} bits", place,
                       setting.value, kMost);
  return static_cast<int>(setting.value);
}

WeightGroup group_of(const Resolver& r, const std::string& name, const Json& json) {
  const std::string path = fmt::format("deepspeed.{}different_groups.{}", kWeightSection, name);
  const auto from = from_json<DsWeightGroup>(json, r.origins, path);
  const auto place = [&](const char* key) { return r.origins.place(path + "." + key); };
  WeightGroup group;
  group.name = name, group.modules = from.modules.value;
  require<ConfigError>(!group.modules.empty(), "{} is missing: expected patterns of the layers' names",
                       place("modules"));
  const Json& related = from.related_modules.value;
  require<ConfigError>(related.is_null() || related.empty(),
                       "{}: weights are rounded for themselves; pruning alone has related modules",
                       place("related_modules"));
  group.bits.start_bits = bits_of(from.params.start_bits, place("params.start_bits"));
  group.bits.target_bits = bits_of(from.params.target_bits, place("params.target_bits"));
  require<ConfigError>(group.bits.start_bits >= group.bits.target_bits,
                       "{} = {} is below target_bits = {}: bits fall, they do not rise", place("params.start_bits"),
                       group.bits.start_bits, group.bits.target_bits);
  group.bits.period = from.params.quantization_period.value;
  require<ConfigError>(group.bits.period >= 1, "{} = {}: expected at least 1", place("params.quantization_period"),
                       group.bits.period);
  return group;
}

std::optional<double> mixed_change(const Resolver& r, const DsMixedQuantize& mixed, bool in_forward) {
  if (!mixed.enabled.value) return {};
  const auto enabled = shared(r, "fp16_mixed_quantize.enabled", mixed.enabled);
  require<ConfigError>(!in_forward,
                       "{} = true does not go with quantize_weight_in_forward, where no weight is mixed: leave one out",
                       enabled.place);
  const auto change = shared(r, "fp16_mixed_quantize.quantize_change_ratio", mixed.quantize_change_ratio);
  require<ConfigError>(0 < change.value && change.value <= 1, "{} = {}: expected a number above 0, at most 1",
                       change.place, change.value);
  return change.value;
}

}  // namespace

void resolve_weight_quantization(Resolver& r) {
  const DsWeightQuantization& section = r.ds.compression_training.weight_quantization;
  const DsWeightQuantizationShared& from = section.shared_parameters;
  if (!from.enabled.value) return;
  require<ConfigError>(r.plan.alignment.method != AlignmentMethod::ppo,
                       "{} does not go with alignment.method = ppo, which trains two models: leave one out",
                       r.origins.place("deepspeed.compression_training.weight_quantization"));
  const Json& groups = section.different_groups.value;
  const std::string place = r.origins.place(fmt::format("deepspeed.{}different_groups", kWeightSection));
  require<ConfigError>(groups.is_object() && !groups.empty(),
                       "{}: expected a group of layers by name, such as {{\"all\": {{\"params\": {{\"start_bits\": 8, "
                       "\"target_bits\": 8}}, \"modules\": [\"proj\"]}}}}",
                       place);
  WeightQuantization quantization;
  const auto offset = shared(r, "schedule_offset", from.schedule_offset);
  const auto pieces = shared(r, "quantize_groups", from.quantize_groups);
  require_at_least<int64_t>(offset, 0);
  require_at_least<int64_t>(pieces, 1);
  quantization.schedule_offset = offset.value, quantization.quantize_groups = pieces.value;
  if (is_second(shared(r, "quantization_type", from.quantization_type), "symmetric", "asymmetric"))
    quantization.scale = QuantizerScale::asymmetric;
  quantization.stochastic = is_second(shared(r, "rounding", from.rounding), "nearest", "stochastic");
  quantization.in_forward = from.quantize_weight_in_forward.value;
  quantization.mixed_change = mixed_change(r, from.fp16_mixed_quantize, quantization.in_forward);
  quantization.seed = r.plan.seed;
  for (const auto& [name, group] : groups.items()) {
    quantization.groups.push_back(group_of(r, name, group));
    const WeightGroup& added = quantization.groups.back();
    r.plan.resolved.push_back({fmt::format("weight_quantization.{}", name),
                               fmt::format("{}: {}", fmt::join(added.modules, ", "), quantization.describe(added)),
                               "deepspeed: compression_training.weight_quantization"});
  }
  r.plan.layout.sharding.weight_quantization = std::move(quantization);
}

}  // namespace nought
