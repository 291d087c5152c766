// What a model becomes in a GGUF file. tests/train/gguf_test.cpp reads whole files back.
#include "nought/models/gguf_model.h"

#include <map>

#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::gguf_model_test {
namespace {

TEST(GgufModel, has_matrices_in_the_asked_type_and_norms_in_f32) {
  const test::TempFolder folder;
  const Decoder model(ModelConfig::from_json({{"model_type", "llama"},
                                              {"vocab_size", 96},
                                              {"hidden_size", 64},
                                              {"intermediate_size", 80},
                                              {"num_hidden_layers", 1},
                                              {"num_attention_heads", 2},
                                              {"max_position_embeddings", 16}}));
  {
    const GgufModelWriter writer(folder / "m.gguf", model, gguf_mixture(GgufType::q8_0), "small", {});
    std::map<std::string, GgufType> types;
    for (const GgufTensor& tensor : writer.tensors()) types[tensor.name] = tensor.type;
    EXPECT_EQ(types.at("token_embd.weight"), GgufType::q8_0);
    EXPECT_EQ(types.at("blk.0.attn_q.weight"), GgufType::q8_0);
    EXPECT_EQ(types.at("blk.0.attn_norm.weight"), GgufType::f32);
    EXPECT_EQ(types.at("blk.0.ffn_down.weight"), GgufType::f16) << "its rows of 80 are no whole blocks";
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf")) << "it was not finished";
}

}  // namespace
}  // namespace nought::gguf_model_test
