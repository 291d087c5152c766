// What a plan of generation says is what the ledger counts.
#include "nought/plan/inference.h"

#include <algorithm>
#include <memory>

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/infer/generate.h"
#include "nought/infer/inference_engine.h"
#include "nought/infer/model_drafter.h"
#include "nought/zero/sharded_model.h"

namespace nought::inference_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Silent final : TokenSink {
  bool on_token(size_t, int32_t) override { return true; }
};

class InferencePlans : public ::testing::TestWithParam<const char*> {};

TEST_P(InferencePlans, say_what_the_ledger_counts) {
  const ModelSource source(test::golden_folder(GetParam()));
  for (const std::optional<DType> kept :
       {std::optional<DType>(), std::optional(DType::i8), std::optional(DType::f16)}) {
    const InferencePlan plan =
        plan_inference(source.config(), &source, source.dtype(), {.context = 24, .sequences = 2, .kv_dtype = kept});
    const Context context = Context::cpu();
    const auto alone = make_self_communicator();
    Decoder decoder(source.config());
    keep_stored_codes(source, decoder);
    ShardedModel model(context, *alone, decoder, {.dtype = source.dtype(), .training = false});
    model.load(source.weights());
    const MemoryLedger& ledger = context.memory->ledger();
    EXPECT_EQ(ledger.current(Category::parameters), plan.weights);
    const std::vector<std::vector<int32_t>> prompts(2, std::vector<int32_t>(20, 3));
    Silent silent;
    generate(decoder, context, source.dtype(), prompts, {.max_new_tokens = 5, .batch = 2, .kv_dtype = kept}, silent);
    EXPECT_EQ(ledger.peak(Category::kv_cache), plan.cache);
    EXPECT_LE(ledger.peak_total(), plan.peak);
    EXPECT_GT(plan.peak, plan.weights + plan.cache);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, InferencePlans,
                         ::testing::Values("open/llama_gqa", "open/deepseek_v3", "open/qwen3_next", "quant/gptq4"),
                         test::name_of_folder<const char*>);

TEST(InferencePlan, has_the_draft_that_guesses_as_the_ledger_does) {
  const ModelSource source(test::golden_folder("open/llama")), guesses(test::golden_folder("open/gpt2"));
  InferencePlan plan = plan_inference(source.config(), &source, source.dtype(), {.context = 40, .sequences = 2});
  const InferencePlan alone = plan;
  add_draft(plan, source.config(), guesses);
  const Context context = Context::cpu();
  const auto self = make_self_communicator();
  Decoder decoder(source.config()), draft(guesses.config());
  ShardedModel model(context, *self, decoder, {.dtype = source.dtype(), .training = false});
  ShardedModel drafting(context, *self, draft, {.dtype = guesses.dtype(), .training = false});
  model.load(source.weights());
  drafting.load(guesses.weights());
  const int64_t capacity = std::min<int64_t>(40, guesses.config().most_cached());
  const auto drafter = std::make_shared<ModelDrafter>(draft, context, guesses.dtype(),
                                                      CacheOptions{.capacity = capacity, .sequences = 2});
  const InferenceEngine engine(decoder, context, source.dtype(),
                               {.capacity = 40, .sequences = 2, .speculation = {drafter, 4}});
  const MemoryLedger& ledger = context.memory->ledger();
  EXPECT_EQ(ledger.current(Category::parameters), plan.weights + plan.draft->weights);
  EXPECT_EQ(ledger.current(Category::kv_cache), plan.cache + plan.draft->cache);
  EXPECT_GE(plan.total(), plan.weights + plan.cache + plan.draft->weights + plan.draft->cache + plan.draft->pass);
  EXPECT_EQ(plan.sequences_in(plan.total()), 2);
  EXPECT_LT(plan.sequences_in(plan.total() - 1), 2);
  EXPECT_LT(alone.total(), plan.total());
  EXPECT_THAT(to_text(plan, plan.total(), "a box"), AllOf(HasSubstr("\ndraft"), HasSubstr("fits a box")));
  EXPECT_EQ(to_json(plan, plan.total()).at("draft").at("weights"), plan.draft->weights);
}

TEST(InferencePlan, of_a_draft_with_another_vocabulary_is_refused) {
  const ModelSource source(test::golden_folder("open/llama")), other(test::golden_folder("open/llama_gqa"));
  InferencePlan plan = plan_inference(source.config(), &source, source.dtype(), {.context = 24});
  ModelConfig config = source.config();
  config.vocab_size = other.config().vocab_size + 1;
  EXPECT_THAT(
      [&] { add_draft(plan, config, other); },
      ThrowsMessage<ConfigError>(HasSubstr("--speculative " + other.folder().string() + ": its vocabulary has")));
}

TEST(InferencePlan, says_how_many_sequences_fit) {
  const ModelSource source(test::golden_folder("open/llama_gqa"));
  const InferencePlan plan =
      plan_inference(source.config(), nullptr, DType::bf16, {.context = 32, .sequences = 4, .kv_dtype = DType::u8});
  const int64_t one = plan.cache / 4, rest = plan.peak - plan.cache;
  EXPECT_EQ(plan.sequences_in(plan.peak), 4);
  EXPECT_EQ(plan.sequences_in(rest + 9 * one + one / 2), 9);
  EXPECT_EQ(plan.sequences_in(rest / 2), 0);
  EXPECT_THAT(to_text(plan, plan.peak, "a box"),
              AllOf(HasSubstr("in fp8"), HasSubstr("\nall"), HasSubstr("fits a box")));
  EXPECT_THAT(to_text(plan, plan.peak - 1, "a box"), HasSubstr("does not fit a box"));
  EXPECT_EQ(to_json(plan, plan.peak).at("kv_dtype"), "fp8");
  EXPECT_EQ(to_json(plan, plan.peak).at("sequences_that_fit"), 4);
  EXPECT_THAT([&] { plan_inference(source.config(), nullptr, DType::bf16, {.context = 0}); },
              ThrowsMessage<ConfigError>(HasSubstr("--context must be")));
}

}  // namespace
}  // namespace nought::inference_test
