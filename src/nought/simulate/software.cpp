#include "nought/simulate/software.h"

#include <array>
#include <map>
#include <vector>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

/// cuDNN on Hopper beside FlashAttention 2, about what arXiv 2407.08608 measured; and PyTorch, which uses both.
constexpr double kCudnnAttention = 1.6, kTorchAttention = 1.15;

const std::vector<Software>& frameworks() {
  static const std::vector<Software> all{
      {.name = "megatron-2021",
       .year = 2021,
       .fused_attention = false,
       .hides_data = false,
       .hides_pipeline = false,
       .gradient_bytes = 2},
      {.name = "megatron-2023", .year = 2023, .fused_attention = false, .hides_data = false, .hides_pipeline = false},
      {.name = "deepspeed", .year = 2022, .fused_attention = false, .gradient_bytes = 2},
      {.name = "fsdp", .year = 2023, .eager = 2},
      {.name = "fsdp2", .year = 2024, .attention = kTorchAttention},
      {.name = "megatron-core", .year = 2024, .hides_tensor = true, .attention = kCudnnAttention},
      {.name = "deepseek", .year = 2024, .hides_tensor = true, .attention = kCudnnAttention}};
  return all;
}

}  // namespace

const Software& software_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Software& each : frameworks()) {
    if (each.name == lower_case(name)) return each;
    names.push_back(each.name);
  }
  fail<ConfigError>("software \"{}\" is unknown: expected {}{}", name, fmt::join(names, ", "),
                    did_you_mean(lower_case(name), names));
}

const Software& software_of_table(const std::string& table, bool hopper_or_later, int zero_stage) {
  static const std::map<std::string, std::string> tables{{"megatron-sc21", "megatron-2021"},
                                                         {"megatron-sp", "megatron-2021"},
                                                         {"megascale-megatron", "megatron-2023"},
                                                         {"bloom", "megatron-2021"},
                                                         {"zero3-a100", "deepspeed"},
                                                         {"llm-foundry", "fsdp"},
                                                         {"torchtitan", "fsdp2"},
                                                         {"automodel", "fsdp2"},
                                                         {"deepseek-v3", "deepseek"},
                                                         {"mcore-h100", "megatron-core"},
                                                         {"llama3-405b", "megatron-core"},
                                                         {"dgxc", "megatron-core"},
                                                         {"nemo-24.07", "megatron-core"},
                                                         {"megatron-bridge", "megatron-core"}};
  if (const auto found = tables.find(table); found != tables.end()) return software_of(found->second);
  if (zero_stage >= 2) return software_of("fsdp2");
  return software_of(hopper_or_later ? "megatron-core" : "megatron-2023");
}

}  // namespace nought
