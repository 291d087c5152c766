// Answers that a model writes: a function of prompt and seed, ended by one of several tokens.
#include "nought/infer/rollout.h"

#include <algorithm>

#include "support/golden.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/infer/inference_engine.h"
#include "nought/weights/hf_folder.h"

namespace nought::rollout_test {
namespace {

class Rollouts : public ::testing::Test {
 protected:
  Rollouts() { model.load(HfWeights(folder, decoder)); }
  std::vector<std::vector<int32_t>> write(const std::vector<AnswerRequest>& requests, const RolloutOptions& options) {
    return write_answers(decoder, context, DType::f32, requests, options);
  }
  std::string folder = test::golden_folder("open/llama_gqa");
  Context context = Context::cpu();
  Decoder decoder{ModelConfig::from_folder(folder)};
  std::unique_ptr<Communicator> self = make_self_communicator();
  ShardedModel model{context, *self, decoder, {.training = false}};
  const std::vector<int32_t> first{5, 9, 200}, second{17};
};

TEST_F(Rollouts, depend_on_prompt_and_seed_alone) {
  const RolloutOptions options{.max_completion_length = 12};
  const auto all = write({{first, 1}, {first, 2}, {second, 1}, {first, 1}}, options);
  EXPECT_EQ(all[0], all[3]);
  EXPECT_NE(all[0], all[1]);
  RolloutOptions few = options;
  few.sequences = 1;
  EXPECT_EQ(write({{second, 1}, {first, 2}}, few), (std::vector{all[2], all[1]}));
}

TEST_F(Rollouts, are_of_the_tokens_that_sampling_leaves) {
  RolloutOptions options{.max_completion_length = 12, .sampling = {.top_k = 1}};
  const auto likeliest = write({{first, 1}}, options);
  EXPECT_EQ(write({{first, 2}}, options), likeliest);
  options.sampling = {.temperature = 0};
  EXPECT_EQ(write({{first, 3}}, options), likeliest);
  options.sampling.repetition_penalty = 50;  // no token comes twice
  std::vector<int32_t> once = write({{first, 1}}, options)[0];
  std::sort(once.begin(), once.end());
  EXPECT_EQ(std::adjacent_find(once.begin(), once.end()), once.end());
}

TEST_F(Rollouts, end_with_the_token_that_ends_them) {
  const auto whole = write({{first, 1}}, {.max_completion_length = 12})[0];
  ASSERT_EQ(whole.size(), 12U);
  const int32_t end = whole[4];
  const auto stop = std::find(whole.begin(), whole.end(), end) + 1;
  EXPECT_EQ(write({{first, 1}}, {.max_completion_length = 12, .stop_ids = {999, end}})[0],
            std::vector<int32_t>(whole.begin(), stop));
  EXPECT_TRUE(write({}, {}).empty());
}

/// Counts the tokens that need no computing.
struct Reused final : RequestListener {
  void on_start(int64_t cached) override { tokens = cached; }
  bool on_token(const ScoredToken&) override { return true; }
  int64_t tokens = -1;
};

TEST_F(Rollouts, of_one_prompt_compute_it_once) {
  std::vector<int32_t> prompt;
  for (int32_t id = 1; id <= 40; ++id) prompt.push_back(id);
  std::vector<int32_t> other = prompt;
  other.front() = 99;
  const RolloutOptions options{.max_completion_length = 6};
  const auto all = write({{prompt, 1}, {prompt, 2}, {other, 1}, {prompt, 3}, {other, 4}}, options);
  EXPECT_EQ(all[1], write({{prompt, 2}}, options)[0]);
  EXPECT_EQ(all[3], write({{prompt, 3}}, options)[0]);
  EXPECT_EQ(all[4], write({{other, 4}}, options)[0]);

  InferenceEngine engine(decoder, context, DType::f32, {.capacity = 64, .sequences = 4});
  std::vector<std::shared_ptr<Reused>> heard;
  for (const auto& each : {prompt, prompt, other, prompt})
    engine.submit({.prompt = each, .max_new_tokens = 2}, heard.emplace_back(std::make_shared<Reused>()));
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(heard[1]->tokens, -1);  // it waits for the first
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(heard[0]->tokens, 0);
  EXPECT_EQ(heard[1]->tokens, 39);
  EXPECT_EQ(heard[2]->tokens, 0);
  EXPECT_EQ(heard[3]->tokens, 39);
}

TEST_F(Rollouts, want_the_memory_of_a_dry_run) {
  const auto peak_of = [&](const auto& run) {
    context.memory->ledger().reset_peaks();
    run();
    return context.memory->ledger().peak(Category::kv_cache);
  };
  const RolloutOptions options{.max_completion_length = 8, .sequences = 2};
  const int64_t real = peak_of([&] { write({{first, 1}, {first, 2}, {first, 3}}, options); });
  EXPECT_GT(real, 0);
  EXPECT_EQ(peak_of([&] { dry_run_answers(decoder, context, DType::f32, 3, 3, 3, options); }), real);
}

}  // namespace
}  // namespace nought::rollout_test
