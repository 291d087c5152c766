// The rotary keys of a GGUF file, all of them and by value: a key that llama.cpp does not know is silently ignored
// there.
#include "nought/models/gguf_metadata.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::gguf_metadata_test {
namespace {

using nlohmann::json;
using ::testing::FloatEq;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

struct RopeKeys {
  std::map<std::string, float> numbers;
  std::map<std::string, std::string> texts;
};

/// What is written under "llama.rope." of a llama with this rope_scaling.
RopeKeys rope_keys(const json& scaling) {
  const ModelConfig config = ModelConfig::from_json({{"model_type", "llama"},
                                                     {"hidden_size", 64},
                                                     {"num_attention_heads", 4},
                                                     {"max_position_embeddings", 128},
                                                     {"rope_theta", 5000},
                                                     {"rope_scaling", scaling}});
  std::vector<std::string> notes;
  RopeKeys keys;
  for (const auto& [key, value] : gguf_metadata(config, 0, "a model", notes)) {
    const std::string prefix = "llama.rope.";
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    if (const auto* number = std::get_if<float>(&value)) keys.numbers[name] = *number;
    if (const auto* count = std::get_if<uint32_t>(&value)) keys.numbers[name] = static_cast<float>(*count);
    if (const auto* text = std::get_if<std::string>(&value)) keys.texts[name] = *text;
  }
  return keys;
}

// llama.cpp multiplies by 0.1 ln(factor) + 1 itself, so that only what differs from it is written as attn_factor.
TEST(GgufRopeKeys, of_yarn_are_those_that_llama_cpp_reads) {
  const json yarn{{"rope_type", "yarn"},
                  {"factor", 4},
                  {"original_max_position_embeddings", 32},
                  {"beta_fast", 24},
                  {"beta_slow", 2}};
  const RopeKeys keys = rope_keys(yarn);
  EXPECT_THAT(keys.texts, UnorderedElementsAre(Pair("scaling.type", "yarn")));
  EXPECT_THAT(keys.numbers,
              UnorderedElementsAre(Pair("dimension_count", 16), Pair("freq_base", 5000), Pair("scaling.factor", 4),
                                   Pair("scaling.original_context_length", 32), Pair("scaling.yarn_beta_fast", 24),
                                   Pair("scaling.yarn_beta_slow", 2), Pair("scaling.attn_factor", FloatEq(1))));
}

TEST(GgufRopeKeys, hold_an_attention_factor_of_the_model_without_llama_cpps_own) {
  const RopeKeys keys = rope_keys(
      {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32}, {"attention_factor", 1.5}});
  EXPECT_FLOAT_EQ(keys.numbers.at("scaling.attn_factor"), static_cast<float>(1.5 / (0.1 * std::log(4.0) + 1)));
}

TEST(GgufRopeKeys, of_other_scalings_are_those_that_llama_cpp_reads) {
  const RopeKeys linear = rope_keys({{"rope_type", "linear"}, {"factor", 8}});
  EXPECT_THAT(linear.texts, UnorderedElementsAre(Pair("scaling.type", "linear")));
  EXPECT_THAT(linear.numbers,
              UnorderedElementsAre(Pair("dimension_count", 16), Pair("freq_base", 5000), Pair("scaling.factor", 8)));
  const std::vector<double> ones(8, 1.0);
  const RopeKeys longrope = rope_keys({{"rope_type", "longrope"},
                                       {"short_factor", ones},
                                       {"long_factor", ones},
                                       {"factor", 4},
                                       {"original_max_position_embeddings", 32}});
  EXPECT_THAT(longrope.texts, UnorderedElementsAre(Pair("scaling.type", "longrope")));
  EXPECT_THAT(
      longrope.numbers,
      UnorderedElementsAre(
          Pair("dimension_count", 16), Pair("freq_base", 5000), Pair("scaling.original_context_length", 32),
          Pair("scaling.attn_factor", FloatEq(static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(32.0)))))));
}

}  // namespace
}  // namespace nought::gguf_metadata_test
