#include "nought/models/adapter_experts.h"

#include <array>

#include <fmt/format.h>

namespace nought {

ExpertModules expert_modules(const WeightNames::Layer& names) {
  const auto module_of = [](std::string name) {
    constexpr std::string_view kOld = ".block_sparse_moe.";
    if (const size_t at = name.find(kOld); at != std::string::npos) name.replace(at, kOld.size(), ".mlp.");
    return name;
  };
  return {module_of(names.experts), module_of(names.router), module_of(names.shared_gate)};
}

bool all_linear_means_experts(const ModelConfig& config) {
  constexpr auto kFamilies =
      std::to_array<std::string_view>({"deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "minimax_m2",
                                       "mixtral", "olmoe", "qwen3_moe", "qwen3_next"});
  for (const std::string_view family : kFamilies)
    if (config.family == family) return true;
  return false;
}

AdapterConfig with_all_experts(AdapterConfig adapter) {
  constexpr const char* kGatesAndUps = ".*\\.gate_up_proj";
  adapter.parameters = {"down_proj", "gate.weight", "gate_up_proj"};
  adapter.rank_pattern.emplace_back(kGatesAndUps, 2 * adapter.r);
  adapter.alpha_pattern.emplace_back(kGatesAndUps, 2 * adapter.alpha);
  return adapter;
}

std::map<std::string, ExpertPart> expert_parts(const ModelConfig& config) {
  std::map<std::string, ExpertPart> parts;
  if (!config.experts || config.experts->storage != ExpertStorage::separate) return parts;
  const int64_t width = config.experts->intermediate_size;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.has_experts(layer)) continue;
    const WeightNames::Layer names = WeightNames::of(config).layer(layer);
    const std::string module = expert_modules(names).experts;
    const std::string gate_up = module + std::string(kGateUpOfExperts), down = module + std::string(kDownOfExperts);
    for (int64_t expert = 0; expert < config.experts->num_experts; ++expert) {
      const auto name = [&](const std::string& of) {
        return fmt::format("{}.{}.{}.weight", names.experts, expert, of);
      };
      parts[name(names.expert_gate)] = {gate_up, expert, 0, width};
      parts[name(names.expert_up)] = {gate_up, expert, width, 2 * width};
      parts[name(names.expert_down)] = {down, expert, 0, config.hidden_size};
    }
  }
  return parts;
}

}  // namespace nought
