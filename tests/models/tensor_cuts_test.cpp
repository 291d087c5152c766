// Which models ranks can share, and what is said of those that they cannot.
#include "nought/models/tensor_cuts.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/decoder.h"

namespace nought {
namespace {

using ::testing::HasSubstr;

ModelConfig golden(const std::string& name) { return ModelConfig::from_folder(test::golden_folder(name)); }

TEST(TensorCuts, heads_that_divide_or_are_shared_evenly_can_be_cut) {
  EXPECT_EQ(reason_not_to_cut(golden("open/llama"), 4), "");
  EXPECT_EQ(reason_not_to_cut(golden("open/llama_gqa"), 8), "") << "2 key/value heads of 8, each for 4 ranks";
  EXPECT_EQ(reason_not_to_cut(golden("open/gpt_neox"), 2), "");
  EXPECT_EQ(reason_not_to_cut(golden("open/mixtral"), 1), "");
}

TEST(TensorCuts, what_does_not_divide_is_named_with_the_nearest_size_that_does) {
  const auto message = [](const ModelConfig& config, int64_t ranks) {
    return test::message_of<ConfigError>([&] { require_cuttable(config, ranks); });
  };
  EXPECT_THAT(message(golden("open/gpt2_untied"), 4), HasSubstr("5 attention heads do not divide; the nearest size "
                                                                "that can is 1"));
  EXPECT_THAT(message(golden("open/llama"), 8), HasSubstr("4 attention heads do not divide; the nearest size that can "
                                                          "is 4"));
  EXPECT_THAT(message(golden("open/mixtral"), 2), HasSubstr("experts are not cut yet"));
  EXPECT_THAT(message(golden("open/deepseek_v2"), 2), HasSubstr("not cut yet"));
  EXPECT_THAT(message(golden("open/olmo2"), 2), HasSubstr("norms over all heads"));
  ModelConfig config = golden("open/llama");
  config.intermediate_size = 94;
  EXPECT_THAT(message(config, 4), HasSubstr("intermediate_size 94 does not divide; the nearest size that can is 2"));
  config = golden("open/llama");
  config.num_kv_heads = 3;
  EXPECT_THAT(message(config, 2), HasSubstr("3 key/value heads of 12"));
  config = golden("open/llama");
  config.vocab_size = 5;
  EXPECT_THAT(message(config, 4), HasSubstr("none of its 5 tokens; the nearest size that can is 2"));
}

}  // namespace
}  // namespace nought
