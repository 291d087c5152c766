// What a plan of generation says is what the ledger counts.
#include "nought/plan/inference.h"

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/infer/generate.h"
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
