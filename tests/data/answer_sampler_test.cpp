// The pairs of a step are spread over micro-batches and ranks: each once, none torn, in rows of one length.
#include "nought/data/answer_sampler.h"

#include <map>
#include <set>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::answer_sampler_test {
namespace {

using test::message_of;
using testing::HasSubstr;

/// Pairs of 10 to 40 tokens, whose answers name them.
std::shared_ptr<const AnswerData> pairs_of(int count) {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{{\"prompt\": \"p{}:\", \"chosen\": \"{}\", \"rejected\": \"r\"}}\n", i,
                        std::string(static_cast<size_t>(1 + i * 7 % 29), 'c'));
  const std::vector<DataSource> sources{{{folder.write("pairs.jsonl", text)}, 0}};
  return std::make_shared<AnswerData>(AnswerData::read(sources, *make_tokenizer("bytes"), {.max_length = 64}));
}

AnswerSampler sampler_on(const std::shared_ptr<const AnswerData>& data, int ranks, int rank, int64_t micro_batch,
                         int64_t accumulation, const AnswerBatchOptions& batch = {}) {
  return AnswerSampler(
      data, {.layout = {.micro_batch = micro_batch, .accumulation = accumulation, .world_size = ranks, .rank = rank},
             .batch = batch,
             .most_tokens = 2 * micro_batch * 64,
             .seed = 3});
}

/// The numbers of a step's sequences on all ranks, with their tokens.
std::map<int64_t, std::vector<int32_t>> sequences_of(const std::shared_ptr<const AnswerData>& data, int ranks,
                                                     int64_t micro_batch, int64_t accumulation) {
  const auto memory = Memory::create();
  std::map<int64_t, std::vector<int32_t>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const AnswerSampler sampler = sampler_on(data, ranks, rank, micro_batch, accumulation);
    for (const Batch& batch : sampler.batches(1, *memory)) {
      EXPECT_EQ(batch.input_ids.shape(), (Shape{1, sampler.row_tokens()}));
      const std::vector<int32_t> ids = batch.input_ids.to_vector<int32_t>();
      const std::vector<int32_t>& starts = batch.document_starts.front();
      for (size_t i = 0; i < batch.sequences.all.size(); ++i) {
        const auto end = i + 1 < starts.size() ? ids.begin() + starts[i + 1] : ids.end();
        EXPECT_TRUE(all.emplace(batch.sequences.all[i].number, std::vector(ids.begin() + starts[i], end)).second);
      }
    }
  }
  return all;
}

TEST(AnswerSampler, every_layout_has_the_same_pairs_in_a_step) {
  const auto data = pairs_of(40);
  const AnswerSampler one = sampler_on(data, 1, 0, 8, 1);
  const std::vector<int64_t> pairs = one.pairs_of_step(1);
  EXPECT_EQ(std::set(pairs.begin(), pairs.end()).size(), 8U);
  for (const auto& [ranks, micro_batch, accumulation] :
       {std::tuple{1, 8, 1}, {1, 1, 8}, {2, 4, 1}, {2, 2, 2}, {4, 1, 2}, {8, 1, 1}}) {
    const auto all = sequences_of(data, ranks, micro_batch, accumulation);
    ASSERT_EQ(all.size(), 16U);
    for (size_t i = 0; i < pairs.size(); ++i)
      for (const int64_t side : {0, 1}) {
        const JudgedAnswer answer = data->answer(2 * pairs[i] + side);
        const std::vector<int32_t>& found = all.at(2 * static_cast<int64_t>(i) + side);
        ASSERT_GE(found.size(), answer.ids.size());
        EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), found.begin()));
      }
  }
}

TEST(AnswerSampler, short_pairs_share_rows_and_all_rows_have_one_length) {
  const auto data = pairs_of(40);
  const auto memory = Memory::create();
  const AnswerSampler sampler = sampler_on(data, 1, 0, 2, 8);
  EXPECT_EQ(sampler.row_tokens() % 64, 0);
  EXPECT_LE(sampler.row_tokens(), 256);
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<Batch> batches = sampler.batches(step, *memory);
    EXPECT_LT(batches.size(), 8U) << "8 micro-batches of 2 pairs have room in fewer rows";
    int64_t tokens = 0;
    for (const Batch& batch : batches) tokens += batch.input_ids.numel();
    EXPECT_GE(tokens, sampler.tokens_of_step(step));
    EXPECT_LE(tokens, 2 * sampler.tokens_of_step(step) + sampler.row_tokens());
  }
  EXPECT_EQ(sampler.weight_of_step(0), 16);
  EXPECT_EQ(sampler.steps_for(1), 3);
  double weights = 0;
  for (int rank = 0; rank < 4; ++rank) weights += sampler_on(data, 4, 0, 2, 2).weight_of_step(0, rank, 1);
  EXPECT_EQ(weights, 16);
}

TEST(AnswerSampler, a_chosen_answers_likelihood_is_a_mean_over_the_tokens_of_the_step) {
  const auto data = pairs_of(8);
  const auto memory = Memory::create();
  double sum = 0;
  for (int rank = 0; rank < 2; ++rank)
    for (const Batch& batch : sampler_on(data, 2, rank, 2, 2, {.likelihood = 0.5}).batches(0, *memory))
      for (const float each : batch.sequences.likelihood.to_vector<float>()) sum += double{each};
  EXPECT_NEAR(sum, 0.5 * 8, 1e-5) << "weight times pairs: the step divides by the number of pairs";
}

TEST(AnswerSampler, gives_each_answer_what_the_reference_says_of_it) {
  const auto data = pairs_of(6);
  const auto memory = Memory::create();
  AnswerSampler sampler = sampler_on(data, 1, 0, 3, 1);
  std::vector<double> reference;
  for (int64_t index = 0; index < data->num_answers(); ++index) reference.push_back(-1.0 - static_cast<double>(index));
  sampler.set_reference(reference);
  const std::vector<int64_t> pairs = sampler.pairs_of_step(0);
  for (const Batch& batch : sampler.batches(0, *memory))
    for (const BatchSequence& each : batch.sequences.all) {
      const int64_t index = 2 * pairs[static_cast<size_t>(each.number / 2)] + each.number % 2;
      EXPECT_EQ(each.reference, reference[static_cast<size_t>(index)]);
    }
}

TEST(AnswerSampler, wants_as_many_pairs_as_a_step_has) {
  EXPECT_THAT(message_of<ConfigError>([] { sampler_on(pairs_of(5), 2, 0, 3, 1); }),
              HasSubstr("has 5 pairs of answers, and one batch needs 6"));
}

}  // namespace
}  // namespace nought::answer_sampler_test
