// The config.json of a multimodal folder means that of its text model.
#include "nought/models/text_part.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"

namespace nought::text_part_test {
namespace {

TEST(TextPart, of_an_older_qwen2_5_vl_lies_beside_the_tower_and_has_positions_of_text) {
  const ModelConfig config =
      ModelConfig::from_json({{"model_type", "qwen2_5_vl"},
                              {"vocab_size", 64},
                              {"hidden_size", 32},
                              {"intermediate_size", 48},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}}},
                              {"vision_config", {{"depth", 2}}},
                              {"image_token_id", 7}});
  EXPECT_EQ(config.family, "qwen2");
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.rope.kind, RopeKind::plain);
  const OrderedJson whole = whole_config(config, DType::bf16);
  EXPECT_EQ(whole["model_type"], "qwen2_5_vl");
  EXPECT_EQ(whole["rope_scaling"]["mrope_section"], OrderedJson({1, 1, 2}));
  EXPECT_EQ(config.to_hf_json(DType::bf16)["model_type"], "qwen2");
}

TEST(TextPart, in_few_bits_is_refused) {
  EXPECT_THAT(test::message_of<ConfigError>([] {
                ModelConfig::from_json({{"model_type", "gemma3"}, {"quantization_config", {{"quant_method", "awq"}}}});
              }),
              ::testing::HasSubstr("the weights of a gemma3 folder are quantized, which is not read"));
}

TEST(TextPart, tells_what_is_carried_by_names) {
  EXPECT_TRUE(is_carried_name("model.vision_tower.a.weight", 2));
  EXPECT_TRUE(is_carried_name("mtp.fc.weight", 2));
  EXPECT_TRUE(is_carried_name("model.layers.2.eh_proj.weight", 2));
  EXPECT_FALSE(is_carried_name("model.layers.1.eh_proj.weight", 2));
  EXPECT_FALSE(is_carried_name("score.weight", 2));
}

}  // namespace
}  // namespace nought::text_part_test
