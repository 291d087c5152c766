#include "nought/models/context_choice.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::context_choice_test {
namespace {

using testing::HasSubstr;

ModelConfig llama(int64_t heads, int64_t kv_heads) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 64},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 128},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", heads},
                                 {"num_key_value_heads", kv_heads},
                                 {"head_dim", 8}});
}

/// Keys and values of a head take 16 elements of a token, gate and up 256.
TEST(ContextChoice, keys_are_gathered_while_they_are_no_wider_than_the_mlp) {
  const auto method = [](int64_t kv_heads, int64_t ranks, int64_t tensor = 1) {
    return choose_context_method(llama(8, kv_heads), ranks, tensor).method;
  };
  EXPECT_EQ(method(8, 2), ContextMethod::gather);
  EXPECT_EQ(method(8, 4), ContextMethod::ring);
  EXPECT_EQ(method(2, 8), ContextMethod::gather);
  EXPECT_EQ(method(2, 16), ContextMethod::ring);
  EXPECT_EQ(method(2, 4, 4), ContextMethod::gather) << "4 ranks share matrices: a key head each, 64 of the MLP";
  EXPECT_EQ(method(2, 8, 4), ContextMethod::ring);
  EXPECT_THAT(choose_context_method(llama(8, 8), 4, 1).reason,
              HasSubstr("auto: both ways send 384 elements per token of a rank, layer and forward pass; all keys and "
                        "values are 512, more than the 256 of its MLP"));
  EXPECT_EQ(choose_context_method(llama(8, 8), 4, 1, ContextMethod::gather).method, ContextMethod::gather);
}

/// A group of heads is no wider over 4 ranks than gate and up: 4 of 8 heads; of 6 heads 3 and 3; at least one.
TEST(ContextChoice, keys_that_are_wider_than_the_mlp_are_gathered_some_heads_at_a_time) {
  const auto heads = [](int64_t kv_heads, int64_t ranks, int64_t tensor = 1) {
    return choose_context_method(llama(kv_heads, kv_heads), ranks, tensor, ContextMethod::gather).gathered_heads;
  };
  EXPECT_EQ(heads(4, 4), 0) << "all at once";
  EXPECT_EQ(heads(8, 4), 4);
  EXPECT_EQ(heads(6, 4), 3);
  EXPECT_EQ(heads(8, 64), 1);
  EXPECT_EQ(heads(8, 8, 2), 1) << "2 heads would be 256 elements wide, and half of the MLP is 128";
  EXPECT_THAT(choose_context_method(llama(8, 8), 4, 1, ContextMethod::gather).reason,
              HasSubstr("as asked, 4 of 8 key/value heads at a time"));
}

TEST(ContextChoice, ulysses_needs_heads_that_divide) {
  for (const auto& [heads, kv_heads, ranks] : {std::tuple{8, 8, 4}, {8, 2, 4}, {8, 1, 8}, {6, 3, 3}})
    EXPECT_NO_THROW(require_heads_for(llama(heads, kv_heads), ranks, 1)) << heads << " " << kv_heads << " " << ranks;
  EXPECT_NO_THROW(require_heads_for(llama(8, 2), 4, 2)) << "each rank of tp_size has 4 and 1";
  const auto refusal = [](int heads, int kv_heads, int ranks, int of) {
    return test::message_of<ConfigError>([&] { require_heads_for(llama(heads, kv_heads), ranks, 1, of); });
  };
  EXPECT_THAT(refusal(6, 6, 4, 8),
              HasSubstr("sp_size = 4: 4 ranks cannot share out the 6 query and 6 key/value heads "
                        "of a llama model; the nearest size that can is 2, and cp_size takes any"));
  EXPECT_THAT(refusal(6, 2, 3, 6), HasSubstr("the nearest size that can is 2")) << "3 ranks, 2 key/value heads";
}

TEST(ContextChoice, layers_that_keep_a_state_are_refused_by_the_name_of_the_option) {
  ModelConfig config = ModelConfig::from_folder(test::golden_folder(test::kGoldenStates[0]));
  EXPECT_NO_THROW(choose_context_method(config, 1, 1));
  const auto refusal = [&](std::optional<ContextMethod> asked) {
    return test::message_of<ConfigError>([&] { choose_context_method(config, 2, 1, asked); });
  };
  EXPECT_THAT(refusal({}), testing::HasSubstr("cp_size = 2: a lfm2 model has layers that keep a state"));
  EXPECT_THAT(refusal(ContextMethod::heads), testing::HasSubstr("sp_size = 2"));
  config.layer_kinds.clear();
  EXPECT_NO_THROW(choose_context_method(config, 2, 1));
}

}  // namespace
}  // namespace nought::context_choice_test
