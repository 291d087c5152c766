// Which models ranks can share, and what is said of those that they cannot.
#include "nought/models/tensor_cuts.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/decoder.h"

namespace nought::tensor_cuts_test {
namespace {

using ::testing::HasSubstr;

ModelConfig golden(const std::string& name) { return ModelConfig::from_folder(test::golden_folder(name)); }

TEST(TensorCuts, heads_that_divide_or_are_shared_evenly_can_be_cut) {
  EXPECT_EQ(reason_not_to_cut(golden("open/llama"), 4), "");
  EXPECT_EQ(reason_not_to_cut(golden("open/llama_gqa"), 8), "") << "2 key/value heads of 8, each for 4 ranks";
  EXPECT_EQ(reason_not_to_cut(golden("open/gpt_neox"), 2), "");
  EXPECT_EQ(reason_not_to_cut(golden("open/olmo2"), 4), "") << "the norms of q and k are cut with the heads";
}

/// Four ranks have 5, 5, 5 and 3 of an expert's 18 features.
TEST(TensorCuts, the_features_of_mlps_and_experts_need_not_divide) {
  EXPECT_EQ(golden("open/deepseek_v2").experts->intermediate_size, 18);
  EXPECT_EQ(reason_not_to_cut(golden("open/deepseek_v2"), 4), "");
  ModelConfig config = golden("open/phi3");
  config.intermediate_size = 95;
  EXPECT_EQ(reason_not_to_cut(config, 4), "");
  config = golden("open/mixtral");
  config.intermediate_size = 1;
  EXPECT_EQ(reason_not_to_cut(config, 4), "") << "it has no dense layer";
}

TEST(TensorCuts, what_does_not_divide_is_named_with_the_nearest_size_that_does) {
  const auto message = [](const ModelConfig& config, int64_t ranks) {
    return test::message_of<ConfigError>([&] { require_cuttable(config, ranks); });
  };
  EXPECT_THAT(message(golden("open/gpt2_untied"), 4), HasSubstr("5 attention heads do not divide; the nearest size "
                                                                "that can is 1"));
  EXPECT_THAT(message(golden("open/llama"), 8), HasSubstr("4 attention heads do not divide; the nearest size that can "
                                                          "is 4"));
  EXPECT_THAT(message(golden("open/deepseek_v2"), 3), HasSubstr("4 attention heads do not divide"));
  const auto message_of_six = test::message_of<ConfigError>([] { require_cuttable(golden("open/llama"), 3, 6); });
  EXPECT_THAT(message_of_six, HasSubstr("the nearest size that can is 2")) << "3 pairs of ranks can";
  ModelConfig config = golden("open/llama");
  config.intermediate_size = 5;
  EXPECT_THAT(message(config, 4), HasSubstr("none of the 5 features of its MLPs; the nearest size that can is 2"));
  config = golden("open/llama");
  config.num_kv_heads = 3;
  EXPECT_THAT(message(config, 2), HasSubstr("3 key/value heads of 12"));
  config = golden("open/llama");
  config.vocab_size = 5;
  EXPECT_THAT(message(config, 4), HasSubstr("none of its 5 tokens; the nearest size that can is 2"));
  config = golden("open/qwen2_moe");
  config.experts->intermediate_size = 5;
  EXPECT_THAT(message(config, 4), HasSubstr("none of the 5 features of its experts; the nearest size that can is 2"));
  config = golden("open/qwen2_moe");
  config.experts->shared_intermediate_size = 9;
  EXPECT_THAT(message(config, 4), HasSubstr("none of the 9 features of its shared expert; the nearest size that can"));
}

}  // namespace
}  // namespace nought::tensor_cuts_test
