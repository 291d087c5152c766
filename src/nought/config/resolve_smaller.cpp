// Training for a smaller model: training.qat, and compression_training.activation_quantization and sparse_pruning.
#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"
#include "nought/config/run_traits.h"

namespace nought {

namespace {

constexpr const char* kInputSection = "compression_training.activation_quantization";
constexpr const char* kPruningSection = "compression_training.sparse_pruning";

/// A group of layers as both sections have it, and where it stands.
template <class Params>
struct LayerGroup {
  std::string name, path;
  DsLayerGroup<Params> written;
};

template <class Params>
std::vector<LayerGroup<Params>> groups_of(const Resolver& r, const char* section, const Setting<Json>& groups,
                                          std::string_view example) {
  const std::string path = fmt::format("deepspeed.{}.different_groups", section);
  require<ConfigError>(groups.value.is_object() && !groups.value.empty(),
                       "{}: expected a group of layers by name, such as {{\"all\": {{\"params\": {}, \"modules\": "
                       "[\"proj\"]}}}}",
                       r.origins.place(path), example);
  std::vector<LayerGroup<Params>> all;
  for (const auto& [name, json] : groups.value.items()) {
    const std::string at = fmt::format("{}.{}", path, name);
    all.push_back({name, at, from_json<DsLayerGroup<Params>>(json, r.origins, at)});
    const DsLayerGroup<Params>& group = all.back().written;
    require<ConfigError>(!group.modules.value.empty(), "{} is missing: expected patterns of the layers' names",
                         r.origins.place(at + ".modules"));
    const Json& related = group.related_modules.value;
    require<ConfigError>(related.is_null() || related.empty(),
                         "{}: pruning of rows and heads alone has related modules",
                         r.origins.place(at + ".related_modules"));
  }
  return all;
}

/// ConfigError for what none of the three goes with.
void refuse_two_models(const Resolver& r, const std::string& place) {
  require<ConfigError>(r.plan.alignment.method != AlignmentMethod::ppo,
                       "{} does not go with alignment.method = ppo, which trains two models: leave one out", place);
  require<ConfigError>(!r.plan.adapts(), "{} does not go with {}: the adapter's model stays as it is", place,
                       r.plan.adapter_place);
}

void refuse_with_inputs(const Resolver& r, const std::string& place) {
  require<ConfigError>(!r.plan.layout.fp8.rounds(),
                       "{} does not go with what rounds inputs already (training.fp8, "
                       "training.qat): leave one out",
                       place);
  const Auto<int64_t>& tiles = r.config.training.memory_centric_tiling;
  require<ConfigError>(!tiles.automatic() && tiles.value <= 1,
                       "{} does not go with training.memory_centric_tiling: a token's inputs have one scale, and tiles "
                       "have parts of them; leave one out",
                       place);
}

QatMode mode_of(const Candidate<std::string>& mode) {
  for (const auto& [each, name] : kQatModes)
    if (name == mode.value) return each;
  std::vector<std::string_view> names;
  for (const auto& [each, name] : kQatModes) names.push_back(name);
  const bool known = mode.value == "nvfp4" || mode.value == "2:4";
  fail<ConfigError>("{} = \"{}\" is {}; there are {}, and none", mode.place, mode.value,
                    known ? "not available" : "no format of training", fmt::join(names, ", "));
}

}  // namespace

void resolve_qat(Resolver& r) {
  const QatArgs& from = r.config.training.qat;
  const auto mode = r.training("qat", from.qat);
  const auto group = r.training("qat_group_size", from.qat_group_size);
  const auto start = r.training("qat_start_step", from.qat_start_step);
  if (mode.value == "none") {
    for (const auto& each : {group, start})
      if (each.given) r.warn(fmt::format("{} has no effect: training.qat is none", each.place));
    return;
  }
  Qat qat{.mode = mode_of(mode), .group_size = group.value, .start_step = start.value};
  require<ConfigError>(!group.given || qat.groups_weights(),
                       "{} does not go with {} = \"{}\", which has no choice of "
                       "groups: leave it out",
                       group.place, mode.place, mode.value);
  require_at_least<int64_t>(group, 2);
  require_at_least<int64_t>(start, 0);
  refuse_two_models(r, mode.place);
  require<ConfigError>(!r.plan.layout.sharding.weight_quantization,
                       "{} does not go with compression_training.weight_quantization: leave one out", mode.place);
  require<ConfigError>(!r.plan.layout.fp8.rounds(), "{} does not go with training.fp8: leave one out", mode.place);
  if (auto inputs = qat.inputs()) {
    refuse_with_inputs(r, mode.place);
    r.plan.layout.fp8.inputs = std::move(*inputs);
  }
  r.plan.resolved.push_back({"qat", fmt::format("{}: {}", mode.value, qat.describe()), mode.reason});
  r.plan.layout.sharding.qat = qat;
}

void resolve_activation_quantization(Resolver& r) {
  const DsActivationQuantization& section = r.ds.compression_training.activation_quantization;
  const DsActivationQuantizationShared& from = section.shared_parameters;
  if (!from.enabled.value) return;
  const auto shared = [&](const char* key, const auto& setting) {
    return r.section_value(fmt::format("deepspeed.{}.shared_parameters.{}", kInputSection, key), setting);
  };
  const std::string place = r.origins.place(fmt::format("deepspeed.{}", kInputSection));
  refuse_two_models(r, place);
  refuse_with_inputs(r, place);
  const auto type = shared("quantization_type", from.quantization_type);
  require<ConfigError>(type.value == "symmetric" || type.value == "asymmetric",
                       "{} = \"{}\": expected \"symmetric\" or \"asymmetric\"", type.place, type.value);
  const auto range = shared("range_calibration", from.range_calibration);
  require<ConfigError>(range.value == "dynamic", "{} = \"{}\": \"dynamic\", a range for each token, is what there is",
                       range.place, range.value);
  const auto offset = shared("schedule_offset", from.schedule_offset);
  require_at_least<int64_t>(offset, 0);
  InputRounding rounding{.grid = type.value == "symmetric" ? RowGrid::symmetric : RowGrid::asymmetric,
                         .start = offset.value,
                         .section = fmt::format("{}.different_groups", kInputSection)};
  for (const auto& group : groups_of<DsInputGroupParams>(r, kInputSection, section.different_groups, "{\"bits\": 8}")) {
    const int64_t bits = group.written.params.bits.value;
    require<ConfigError>(bits == 4 || bits == 8, "{} = {}: expected 4 or 8",
                         r.origins.place(group.path + ".params.bits"), bits);
    rounding.groups.push_back({group.name, group.written.modules.value, static_cast<int>(bits)});
    r.plan.resolved.push_back(
        {fmt::format("activation_quantization.{}", group.name),
         fmt::format("{}: {}", fmt::join(group.written.modules.value, ", "), rounding.describe(rounding.groups.back())),
         fmt::format("deepspeed: {}", kInputSection)});
  }
  r.plan.layout.fp8.inputs = std::move(rounding);
}

void resolve_sparse_pruning(Resolver& r) {
  const DsSparsePruning& section = r.ds.compression_training.sparse_pruning;
  const DsSparsePruningShared& from = section.shared_parameters;
  if (!from.enabled.value) return;
  const auto shared = [&](const char* key, const auto& setting) {
    return r.section_value(fmt::format("deepspeed.{}.shared_parameters.{}", kPruningSection, key), setting);
  };
  const std::string place = r.origins.place(fmt::format("deepspeed.{}", kPruningSection));
  refuse_two_models(r, place);
  require<ConfigError>(!r.config.training.async_data_parallel.staleness.given,
                       "{} does not go with training.async_data_parallel, whose servers update: leave one out", place);
  const auto method = shared("method", from.method);
  require<ConfigError>(method.value == "l1", "{} = \"{}\": \"l1\", by magnitude, is what there is", method.place,
                       method.value);
  const auto refuse_key = [&](const char* key, const auto& setting) {
    require<ConfigError>(!setting.given, "{} is of the method snip_momentum, and the method is l1: leave it out",
                         shared(key, setting).place);
  };
  refuse_key("schedule_offset_end", from.schedule_offset_end);
  refuse_key("schedule_offset_stride", from.schedule_offset_stride);
  refuse_key("block_pattern", from.block_pattern);
  refuse_key("dense_ratio", from.dense_ratio);
  refuse_key("excluded_modules", from.excluded_modules);
  const auto offset = shared("schedule_offset", from.schedule_offset);
  require_at_least<int64_t>(offset, 0);
  SparsePruning pruning{.schedule_offset = offset.value};
  for (const auto& group :
       groups_of<DsPrunedGroupParams>(r, kPruningSection, section.different_groups, "{\"dense_ratio\": 0.5}")) {
    const Setting<double>& ratio = group.written.params.dense_ratio;
    require<ConfigError>(ratio.given && 0 < ratio.value && ratio.value <= 1,
                         "{}: expected the part of the weights that stays, above 0 and at most 1",
                         r.origins.place(group.path + ".params.dense_ratio"));
    pruning.groups.push_back({group.name, group.written.modules.value, ratio.value});
    r.plan.resolved.push_back(
        {fmt::format("sparse_pruning.{}", group.name),
         fmt::format("{}: {}", fmt::join(group.written.modules.value, ", "), pruning.describe(pruning.groups.back())),
         fmt::format("deepspeed: {}", kPruningSection)});
  }
  r.plan.layout.sharding.sparse_pruning = std::move(pruning);
}

}  // namespace nought
