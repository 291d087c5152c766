// The names of weights are those of Hugging Face's checkpoints.
#include "nought/models/names.h"

#include <set>

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/decoder.h"
#include "nought/models/weight_files.h"

namespace nought::names_test {
namespace {

using testing::ElementsAre;

/// transformers wrote these folders: the decoder asks for every tensor in them, and for no other.
TEST(WeightNames, every_golden_folder_has_the_names_that_its_decoder_asks_for) {
  std::vector<const char*> all(std::begin(test::kGoldenFamilies), std::end(test::kGoldenFamilies));
  all.insert(all.end(), std::begin(test::kGoldenOptions), std::end(test::kGoldenOptions));
  for (const char* name : all) {
    const std::string folder = test::golden_folder(name);
    std::set<std::string> stored, asked;
    for (const TensorEntry& entry : WeightFiles(folder).entries())
      if (!is_buffer_name(entry.name)) stored.insert(entry.name);
    const Decoder decoder(ModelConfig::from_folder(folder));
    for (const auto& unit : decoder.units())
      for (const Parameter& parameter : unit->parameters()) asked.insert(parameter.name);
    EXPECT_EQ(asked, stored) << name;
  }
}

TEST(WeightNames, layers_are_numbered_and_fused_projections_have_one_name) {
  ModelConfig config;
  config.family = "gpt2";
  EXPECT_THAT(WeightNames::of(config).layer(3).qkv, ElementsAre("transformer.h.3.attn.c_attn"));
  config.family = "llama";
  EXPECT_THAT(WeightNames::of(config).layer(3).qkv,
              ElementsAre("model.layers.3.self_attn.q_proj", "model.layers.3.self_attn.k_proj",
                          "model.layers.3.self_attn.v_proj"));
  config.family = "phi3";
  EXPECT_THAT(WeightNames::of(config).layer(0).up, ElementsAre("model.layers.0.mlp.gate_up_proj"));
  config.family = "gpt_neox";
  EXPECT_EQ(WeightNames::of(config).head, "embed_out");
}

TEST(WeightNames, norms_around_a_branch_have_the_names_of_gemma) {
  ModelConfig config;
  config.family = "gemma2";
  EXPECT_EQ(WeightNames::of(config).layer(0).mlp_norm, "model.layers.0.post_attention_layernorm");
  config.norm_placement = NormPlacement::pre_and_post;
  const WeightNames::Layer layer = WeightNames::of(config).layer(0);
  EXPECT_EQ(layer.attention_post_norm, "model.layers.0.post_attention_layernorm");
  EXPECT_EQ(layer.mlp_norm, "model.layers.0.pre_feedforward_layernorm");
}

TEST(WeightNames, older_names_and_buffers_are_known) {
  EXPECT_THAT(alternative_names("transformer.h.0.ln_1.weight"), ElementsAre("h.0.ln_1.weight"));
  EXPECT_THAT(alternative_names("model.norm.weight"), ElementsAre("norm.weight"));
  EXPECT_THAT(alternative_names("lm_head.weight"), ElementsAre());
  EXPECT_THAT(
      alternative_names("bert.embeddings.LayerNorm.weight"),
      ElementsAre("embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.gamma"));
  for (const char* buffer : {"h.0.attn.bias", "h.0.attn.masked_bias", "model.layers.0.self_attn.rotary_emb.inv_freq"})
    EXPECT_TRUE(is_buffer_name(buffer)) << buffer;
  EXPECT_FALSE(is_buffer_name("h.0.attn.c_attn.bias"));
}

}  // namespace
}  // namespace nought::names_test
