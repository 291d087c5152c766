// A prompt is continued between two steps: alike on all ranks at every stage. That training does not notice is
// trainer_run_test's.
#include "nought/train/text_sample.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/infer/generate.h"
#include "nought/weights/hf_folder.h"

namespace nought::text_sample_test {
namespace {

using test::message_of;
using testing::HasSubstr;

struct All final : TokenSink {
  bool on_token(size_t, int32_t) override { return true; }
};

TEST(TextSample, is_what_generation_gives_on_every_rank_at_every_stage) {
  const auto tokenizer = make_tokenizer("bytes");
  const SamplePlan plan{.prompt = "abc", .max_new_tokens = 12};
  std::string expected;
  {
    Decoder decoder(test::tiny_llama());
    const Context context = Context::cpu();
    const auto self = make_self_communicator();
    ShardedModel model(context, *self, decoder, {.training = false});
    model.load(InitialState(5));
    const std::vector<int32_t> prompt{'a', 'b', 'c'};
    All sink;
    const auto ids = generate(decoder, context, DType::f32, std::span(&prompt, 1),
                              {.max_new_tokens = 12, .sampling = {.temperature = 0}}, sink);
    for (const int32_t id : ids[0]) {
      if (id == tokenizer->separator()) break;
      expected += static_cast<char>(id);
    }
  }
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](Communicator& world, const Context& context) {
      Decoder decoder(test::tiny_llama());
      ShardedModel model(context, world, decoder, {.policy = Policy::stage(stage)});
      model.load(InitialState(5));
      EXPECT_EQ(continue_prompt(model, decoder, *tokenizer, plan), expected) << "stage " << stage;
      EXPECT_EQ(continue_prompt(model, decoder, *tokenizer, plan), expected) << "again";
    });
}

TEST(TextSample, leaves_out_tokens_of_a_padded_vocabulary_that_no_tokenizer_has) {
  const auto tokenizer = make_tokenizer("bytes");
  Json json = test::tiny_llama_json();
  json["vocab_size"] = 256 + 4096;  // an untrained model chooses one of the padding nearly always
  const ModelConfig config = ModelConfig::from_json(json);
  Decoder decoder(config);
  const auto self = make_self_communicator();
  ShardedModel model(Context::cpu(), *self, decoder, {.training = false});
  model.load(InitialState(5));
  EXPECT_LT(continue_prompt(model, decoder, *tokenizer, {.prompt = "abc", .max_new_tokens = 12}).size(), 12U);
}

TEST(TextSample, keeps_to_the_positions_that_a_model_has_learned) {
  const auto tokenizer = make_tokenizer("bytes");
  const ModelConfig config = ModelConfig::from_json(
      {{"model_type", "gpt2"}, {"vocab_size", 256}, {"n_embd", 16}, {"n_layer", 1}, {"n_head", 2}, {"n_positions", 8}});
  const auto refusal = [&](const std::string& prompt) {
    return message_of<ConfigError>([&] { check_sample({.prompt = prompt}, *tokenizer, config); });
  };
  EXPECT_EQ(refusal("12345678"), "");
  EXPECT_THAT(refusal("123456789"), HasSubstr("sample_prompt has 9 tokens, the model has learned 8 positions"));
  EXPECT_THAT(refusal(""), HasSubstr("has no token"));
  Decoder decoder(config);
  const auto self = make_self_communicator();
  ShardedModel model(Context::cpu(), *self, decoder, {});
  model.load(InitialState(5));
  EXPECT_LE(continue_prompt(model, decoder, *tokenizer, {.prompt = "12345678"}).size(), 1u);
}

}  // namespace
}  // namespace nought::text_sample_test
