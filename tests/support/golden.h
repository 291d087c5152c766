// The golden folders of tests/golden, and comparisons by the rules of its README.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "support/golden_root.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nought/io/safetensors.h"

namespace nought::test {

inline std::string golden_folder(const std::string& name) { return golden_root() + "/" + name; }

/// The name of a test of one of them: "open/llama" is open_llama.
template <class Name>
std::string name_of_folder(const testing::TestParamInfo<Name>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '-'; }, '_');
  return name;
}

/// Folders of tests/golden/open: one or more for each family.
inline constexpr const char* kGoldenFamilies[] = {"open/deepseek_v2",   "open/deepseek_v2_lite",
                                                  "open/deepseek_v3",   "open/deepseek_v3_yarn",
                                                  "open/gemma",         "open/gemma2",
                                                  "open/gemma3_text",   "open/gpt2",
                                                  "open/gpt2_untied",   "open/gpt_neox",
                                                  "open/gpt_oss",       "open/llama",
                                                  "open/llama3",        "open/llama_gqa",
                                                  "open/llama_linear",  "open/llama_yarn",
                                                  "open/mistral",       "open/mixtral",
                                                  "open/olmo2",         "open/phi3",
                                                  "open/phi3_longrope", "open/qwen2",
                                                  "open/qwen2_moe",     "open/qwen2_swa",
                                                  "open/qwen3",         "open/qwen3_moe"};

/// Folders of tests/golden/open for one option each, which what the families share is not proved with again.
inline constexpr const char* kGoldenVariants[] = {"open/gpt2_by_layer", "open/llama_dynamic", "open/olmoe_clip",
                                                  "open/opt_post"};

/// Folders of tests/golden/open, which tests/golden/make.py makes: families that are options of the decoder. They take
/// part in fewer sweeps than the others.
inline constexpr const char* kGoldenOptions[] = {
    "open/cohere2",          "open/ernie4_5",     "open/ernie4_5_moe", "open/exaone4",     "open/glm4",
    "open/glm4_moe",         "open/granite",      "open/lfm2",         "open/llama4_text", "open/minimax_m2",
    "open/ministral3",       "open/olmo3",        "open/olmoe",        "open/opt",         "open/phi",
    "open/qwen3_5_moe_text", "open/qwen3_5_text", "open/qwen3_next",   "open/seed_oss",    "open/smollm3",
    "open/starcoder2"};

/// Folders of kGoldenOptions with layers that keep a state along a sequence.
inline constexpr const char* kGoldenStates[] = {"open/lfm2", "open/qwen3_5_text", "open/qwen3_next"};

struct Difference {
  double max_abs = 0;      // max |actual - expected|
  double relative_l2 = 0;  // |actual - expected| / |expected|
  double norm = 0;         // |expected|
};

inline Difference difference(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.numel(), expected.numel());
  const std::vector<double> a = actual.to_vector<double>(), e = expected.to_vector<double>();
  Difference d;
  double squares = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), e.size()); ++i) {
    const double delta = a[i] - e[i];
    d.max_abs = std::isnan(delta) ? INFINITY : std::max(d.max_abs, std::abs(delta));
    squares += delta * delta, norm += e[i] * e[i];
  }
  d.norm = std::sqrt(norm);
  d.relative_l2 = std::sqrt(squares) / d.norm;
  return d;
}

/// GPT-2's key bias: its true gradient is 0, what is stored is rounding noise.
inline bool is_gpt2_attention_bias(const std::string& name) { return name.ends_with("attn.c_attn.bias"); }

/// Relative L2 of at most `limit`; the noise of GPT-2's key bias, and gradients that vanish, by absolute difference.
inline void expect_gradient_close(const std::string& name, const Tensor& actual, const Tensor& expected, double limit) {
  const Difference d = difference(actual, expected);
  if (d.norm < 1e-6) {
    EXPECT_LE(d.max_abs, 1e-7) << name;
  } else {
    EXPECT_LE(d.relative_l2, limit) << name;
  }
  if (is_gpt2_attention_bias(name)) {
    const int64_t third = actual.numel() / 3;
    EXPECT_LE(
        difference(actual.flat(third, 2 * third), expected.flat(0, expected.numel()).flat(third, 2 * third)).max_abs,
        1e-7)
        << name << " (key part)";
  }
}

}  // namespace nought::test
