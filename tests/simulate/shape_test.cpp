// A shape counts the parameters and FLOPs that the model's own config counts.
#include "nought/simulate/shape.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/models/flops.h"

namespace nought::shape_test {
namespace {

const Json kLlama = {{"model_type", "llama"},      {"vocab_size", 128256},           {"hidden_size", 4096},
                     {"intermediate_size", 14336}, {"num_hidden_layers", 32},        {"num_attention_heads", 32},
                     {"num_key_value_heads", 8},   {"max_position_embeddings", 8192}};

TEST(Shape, a_config_and_its_shape_agree_on_parameters_and_flops) {
  const ModelConfig config = ModelConfig::from_json(kLlama);
  const ModelShape shape = shape_of(config);
  EXPECT_NEAR(shape.parameters() / static_cast<double>(config.parameter_count()), 1, 1e-4) << "but for the norms";
  for (const bool causal : {false, true})
    EXPECT_NEAR(shape.flops_per_token(8192, causal) / training_flops_per_token(config, 8192, causal), 1, 1e-4);
}

TEST(Shape, a_published_model_has_the_parameters_of_its_name) {
  const Json deepseek = Json::parse(R"({"layers": 61, "hidden": 7168, "heads": 128, "head_dim": 192, "ffn": 18432,
    "gated_mlp": true, "vocab": 129280, "moe": {"experts": 256, "top_k": 8, "expert_ffn": 2048, "shared_experts": 1,
    "dense_layers": 3}, "mla": {"q_lora": 1536, "kv_lora": 512, "rope": 64, "nope": 128, "v": 128}})");
  EXPECT_NEAR(shape_of(deepseek, "deepseek-v3", "models").parameters(), 671e9, 1e9);
}

TEST(Shape, a_size_that_is_missing_is_named) {
  EXPECT_THAT(test::message_of<ConfigError>([] {
                shape_of(Json{{"layers", 2}}, "mine", "models.mine");
              }),
              testing::HasSubstr("models.mine: hidden is missing"));
}

}  // namespace
}  // namespace nought::shape_test
