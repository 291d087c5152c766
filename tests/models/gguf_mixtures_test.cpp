// Tensors have the types that llama.cpp's own llama-quantize gives them.
#include "nought/models/gguf_mixtures.h"

#include "support/golden_root.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/io/gguf_file.h"

namespace nought::gguf_mixtures_test {
namespace {

ModelConfig llama(int64_t layers) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 96},
                                 {"hidden_size", 256},
                                 {"intermediate_size", 512},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 4},
                                 {"max_position_embeddings", 16}});
}

std::string types_of_layers(std::string_view mixture, const std::string& part, int64_t layers = 32) {
  const ModelConfig config = llama(layers);
  std::string types;
  for (int64_t i = 0; i < layers; ++i) {
    const GgufType type =
        find_gguf_mixture(mixture)->type_of("blk." + std::to_string(i) + "." + part + ".weight", {256, 256}, config);
    types += name_of(type)[1];
  }
  return types;
}

std::string eight_times(const std::string& layers) {
  std::string all;
  for (int i = 0; i < 8; ++i) all += layers;
  return all;
}

TEST(GgufMixtures, a_file_of_llama_quantize_has_the_types_of_its_mixture) {
  const GgufFile file(test::golden_root() + "/quant/gguf/llama_q4_k_m.gguf");
  const ModelConfig config = llama(1);
  int matrices = 0;
  for (const GgufEntry& tensor : file.entries()) {
    if (tensor.type == GgufType::f32) continue;
    EXPECT_EQ(find_gguf_mixture("q4_k_m")->type_of(tensor.name, tensor.shape, config), tensor.type) << tensor.name;
    ++matrices;
  }
  EXPECT_EQ(matrices, 9);
}

TEST(GgufMixtures, some_layers_take_more_bits) {
  EXPECT_EQ(types_of_layers("q4_k_m", "attn_v"), "6666" + eight_times("446") + "6666");
  EXPECT_EQ(types_of_layers("q4_k_m", "ffn_down"), types_of_layers("q4_k_m", "attn_v"));
  EXPECT_EQ(types_of_layers("q5_k_m", "ffn_down"), "6666" + eight_times("556") + "6666");
  EXPECT_EQ(types_of_layers("q4_k_s", "ffn_down"), "5555" + std::string(28, '4'));
  EXPECT_EQ(types_of_layers("q3_k_m", "ffn_down"), "5544" + eight_times("334") + "4444");
  EXPECT_EQ(types_of_layers("q3_k_m", "attn_v"), "55" + std::string(30, '4'));
  EXPECT_EQ(types_of_layers("q2_k", "attn_output"), std::string(32, '3'));
  EXPECT_EQ(types_of_layers("q4_k_m", "attn_q"), std::string(32, '4'));
}

TEST(GgufMixtures, the_head_takes_more_bits_and_so_does_a_table_that_is_one) {
  ModelConfig config = llama(2);
  const GgufMixture& q4 = *find_gguf_mixture("q4_0");
  EXPECT_EQ(q4.type_of("output.weight", {96, 256}, config), GgufType::q6_k);
  EXPECT_EQ(q4.type_of("token_embd.weight", {96, 256}, config), GgufType::q4_0);
  config.tie_word_embeddings = true;
  EXPECT_EQ(q4.type_of("token_embd.weight", {96, 256}, config), GgufType::q6_k);
  EXPECT_EQ(find_gguf_mixture("q8_0")->type_of("token_embd.weight", {96, 256}, config), GgufType::q8_0);
}

TEST(GgufMixtures, rows_that_are_no_whole_blocks_take_another_type) {
  const ModelConfig config = llama(8);
  const auto type = [&](std::string_view mixture, int64_t columns) {
    return name_of(find_gguf_mixture(mixture)->type_of("blk.3.attn_q.weight", {256, columns}, config));
  };
  EXPECT_EQ(type("q4_k_m", 256), "q4_k");
  EXPECT_EQ(type("q4_k_m", 96), "q5_0");
  EXPECT_EQ(type("q5_k_m", 96), "q5_1");
  EXPECT_EQ(type("q6_k", 96), "q8_0");
  EXPECT_EQ(type("q2_k", 96), "iq4_nl");
  EXPECT_EQ(type("q2_k", 80), "f16");
}

TEST(GgufMixtures, experts_alone_are_in_mxfp4) {
  ModelConfig config = llama(2);
  const GgufMixture& mxfp4 = *find_gguf_mixture("mxfp4_moe");
  EXPECT_EQ(mxfp4.type_of("blk.0.ffn_up.weight", {512, 256}, config), GgufType::mxfp4) << "it has no experts";
  config.experts.emplace().num_experts = 4;
  EXPECT_EQ(mxfp4.type_of("blk.0.ffn_up.weight", {512, 256}, config), GgufType::q8_0);
  EXPECT_EQ(mxfp4.type_of("blk.0.ffn_up_exps.weight", {4, 512, 256}, config), GgufType::mxfp4);
  EXPECT_EQ(mxfp4.type_of("token_embd.weight", {96, 256}, config), GgufType::q8_0);
}

TEST(GgufMixtures, eight_experts_have_values_in_eight_bits) {
  ModelConfig config = llama(2);
  config.experts.emplace().num_experts = 8;
  const GgufMixture& medium = *find_gguf_mixture("q4_k");
  EXPECT_EQ(medium.type_of("blk.1.attn_v.weight", {64, 256}, config), GgufType::q8_0);
  EXPECT_EQ(medium.type_of("blk.1.attn_k.weight", {64, 256}, config), GgufType::q8_0);
  EXPECT_EQ(medium.type_of("blk.1.attn_output.weight", {256, 256}, config), GgufType::q5_k);
}

TEST(GgufMixtures, a_mixture_is_found_by_its_names_alone) {
  EXPECT_EQ(find_gguf_mixture("q4_k")->name, "q4_k_m");
  EXPECT_EQ(find_gguf_mixture("q9_0"), nullptr);
  EXPECT_EQ(gguf_mixture(GgufType::q5_k).name, "q5_k_m");
  EXPECT_EQ(gguf_mixture(GgufType::f16).number, 1u);
}

}  // namespace
}  // namespace nought::gguf_mixtures_test
