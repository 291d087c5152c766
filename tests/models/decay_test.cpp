// Weight decay applies to the parameters that transformers' Trainer lets decay: matrices, not norms and not biases.
#include <regex>
#include <set>

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/decoder.h"

namespace nought::decay_test {
namespace {

using ::testing::UnorderedElementsAre;

/// The names of the parameters that decay, or of those that do not; of the first layer only.
std::set<std::string> names_of(const std::string& folder, bool decay) {
  const Decoder decoder(ModelConfig::from_folder(test::golden_folder(folder)));
  std::set<std::string> names;
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters())
      if (parameter.decay == decay && !unit->name().starts_with("block.1")) names.insert(parameter.name);
  return names;
}

TEST(WeightDecay, of_llama_leaves_out_its_norms) {
  EXPECT_THAT(names_of("open/llama", false),
              UnorderedElementsAre("model.layers.0.input_layernorm.weight",
                                   "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"));
  EXPECT_THAT(names_of("open/llama", true),
              UnorderedElementsAre("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                                   "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                   "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
                                   "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
                                   "lm_head.weight"));
}

TEST(WeightDecay, of_gpt2_leaves_out_norms_and_biases) {
  const std::string layer = "transformer.h.0.";
  EXPECT_THAT(names_of("open/gpt2", false),
              UnorderedElementsAre(layer + "ln_1.weight", layer + "ln_1.bias", layer + "attn.c_attn.bias",
                                   layer + "attn.c_proj.bias", layer + "ln_2.weight", layer + "ln_2.bias",
                                   layer + "mlp.c_fc.bias", layer + "mlp.c_proj.bias", "transformer.ln_f.weight",
                                   "transformer.ln_f.bias"));
}

class WeightDecayOf : public ::testing::TestWithParam<const char*> {};

/// By name: what Trainer.get_decay_parameter_names leaves out, and the sinks of attention, which are scores.
TEST_P(WeightDecayOf, all_parameters_follows_from_their_names) {
  const std::regex left_out(R"(bias|norm|\.ln_[12f]\.|sinks)");
  const Decoder decoder(ModelConfig::from_folder(test::golden_folder(GetParam())));
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters())
      EXPECT_EQ(parameter.decay, !std::regex_search(parameter.name, left_out)) << parameter.name;
}

INSTANTIATE_TEST_SUITE_P(Families, WeightDecayOf, ::testing::ValuesIn(test::kGoldenFamilies), [](const auto& info) {
  return std::string(info.param).substr(std::string_view("open/").size());
});

}  // namespace
}  // namespace nought::decay_test
