#include "nought/data/answer_batch.h"

#include <gtest/gtest.h>

namespace nought::answer_batch_test {
namespace {

const std::vector<int32_t> kChosen{5, 6, 7, 8, 9}, kRejected{5, 6, 4};  // after a prompt of two tokens

TEST(AnswerBatch, answers_are_documents_of_one_row) {
  const auto memory = Memory::create();
  const std::vector<JudgedAnswer> answers{{kChosen, 2, 0, -3.5}, {kRejected, 2, 7, -1}};
  const Batch batch = batch_of_answers(*memory, answers, {});
  EXPECT_EQ(batch.input_ids.to_vector<int32_t>(), (std::vector<int32_t>{5, 6, 7, 8, 9, 5, 6, 4}));
  EXPECT_EQ(batch.targets.to_vector<int32_t>(), (std::vector<int32_t>{-100, 7, 8, 9, -100, -100, 4, -100}));
  EXPECT_EQ(batch.document_starts, (std::vector<std::vector<int32_t>>{{0, 5}}));
  EXPECT_EQ(batch.sequences.of_target.to_vector<int32_t>(), (std::vector<int32_t>{-1, 0, 0, 0, -1, -1, 1, -1}));
  EXPECT_FALSE(batch.weights.defined() || batch.sequences.likelihood.defined() || batch.placeholder);
  ASSERT_EQ(batch.sequences.all.size(), 2U);
  EXPECT_EQ(batch.sequences.all[0].targets, 3);
  EXPECT_EQ(batch.sequences.all[1].number, 7);
  EXPECT_EQ(batch.sequences.all[0].reference, -3.5);
}

TEST(AnswerBatch, tokens_beyond_the_shorter_answer_count_less) {
  const auto memory = Memory::create();
  const Batch batch =
      batch_of_answers(*memory, std::vector<JudgedAnswer>{{kChosen, 2}, {kRejected, 2}}, {.ld_alpha = 0.25});
  const std::vector<float> weights = batch.weights.to_vector<float>();
  EXPECT_EQ((std::vector<float>{weights[1], weights[2], weights[3], weights[6]}),
            (std::vector<float>{1, 0.25, 0.25, 1}));
}

TEST(AnswerBatch, the_likelihood_is_that_of_chosen_answers) {
  const auto memory = Memory::create();
  const std::vector<JudgedAnswer> answers{{kChosen, 2}, {kRejected, 2}};
  const Batch own = batch_of_answers(*memory, answers, {.likelihood = 0.5});
  EXPECT_EQ(own.sequences.likelihood.to_vector<float>(), (std::vector<float>{0, 0.5, 0.5, 0.5, 0, 0, 0, 0}));
  const Batch all = batch_of_answers(*memory, answers, {.likelihood = 0.5, .likelihood_of_prompts = true});
  EXPECT_EQ(all.sequences.likelihood.to_vector<float>(), (std::vector<float>{0.5, 0.5, 0.5, 0.5, 0, 0, 0, 0}));
  EXPECT_EQ(all.targets.to_vector<int32_t>()[0], 6);
  EXPECT_EQ(all.sequences.of_target.to_vector<int32_t>()[0], -1);
  EXPECT_EQ(likelihood_tokens(answers[0], false), 3);
  EXPECT_EQ(likelihood_tokens(answers[0], true), 4);
}

TEST(AnswerBatch, what_fills_a_row_up_has_no_more_positions_than_the_model) {
  const auto memory = Memory::create();
  const std::vector<JudgedAnswer> answers{{kChosen, 2}};
  const auto starts = [&](AnswerBatchOptions options) {
    return batch_of_answers(*memory, answers, options).document_starts;
  };
  EXPECT_EQ(starts({.length = 80}), (std::vector<std::vector<int32_t>>{{0, 5, 69}}));
  EXPECT_EQ(starts({.length = 80, .most_positions = 32}), (std::vector<std::vector<int32_t>>{{0, 5, 37, 69}}));
  EXPECT_EQ(starts({.length = 80, .most_positions = 512}), (std::vector<std::vector<int32_t>>{{0, 5, 69}}));
}

TEST(AnswerBatch, a_rank_without_pairs_has_a_placeholder) {
  const auto memory = Memory::create();
  const Batch batch = batch_of_answers(*memory, {}, {});
  EXPECT_TRUE(batch.placeholder && batch.sequences.all.empty());
  EXPECT_EQ(batch.targets.to_vector<int32_t>(), (std::vector<int32_t>{kIgnoredTarget}));
  EXPECT_ANY_THROW(batch_of_answers(*memory, std::vector<JudgedAnswer>{{kChosen, 2}}, {.likelihood = 1}));
}

}  // namespace
}  // namespace nought::answer_batch_test
