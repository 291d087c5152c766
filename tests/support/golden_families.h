// The golden families, and which of them meshes can cut.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace nought::test {

/// Those that two and four ranks can share the matrices of.
inline std::vector<const char*> shared_families() {
  return {"open/deepseek_v2", "open/deepseek_v2_lite",
          "open/deepseek_v3", "open/deepseek_v3_yarn",
          "open/gemma",       "open/gemma2",
          "open/gemma3_text", "open/gpt2",
          "open/gpt_neox",    "open/gpt_oss",
          "open/llama",       "open/llama3",
          "open/llama_gqa",   "open/llama_linear",
          "open/llama_yarn",  "open/mistral",
          "open/mixtral",     "open/olmo2",
          "open/phi3",        "open/phi3_longrope",
          "open/qwen2",       "open/qwen2_moe",
          "open/qwen2_swa",   "open/qwen3",
          "open/qwen3_moe"};
}

inline auto cut_families() { return ::testing::ValuesIn(shared_families()); }

/// And the one whose five heads they cannot share: layers can lie on different ranks in every family.
inline auto staged_families() {
  std::vector<const char*> all = shared_families();
  all.push_back("open/gpt2_untied");
  return ::testing::ValuesIn(all);
}

/// The name of a test of one of them.
inline std::string family_of(const ::testing::TestParamInfo<const char*>& info) {
  return std::string(info.param).substr(5);
}

}  // namespace nought::test
