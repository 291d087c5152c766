// What a loss is divided by: exactly the targets that are not ignored, whether a mask or the ends of documents or
// neither leave some out.
#include <numeric>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/data/sampler.h"
#include "nought/data/token_file.h"

namespace nought::target_count_test {
namespace {

using test::TempFolder;

/// Documents of 11 tokens; with `masked`, the first five of each are context only.
TokenDataset documents(const TempFolder& folder, bool masked, bool separate) {
  const auto bytes = make_tokenizer("bytes");
  TokenFileWriter writer(bytes->vocab_size(), bytes->fingerprint());
  for (int document = 0; document < 12; ++document) {
    std::vector<int32_t> ids(11);
    std::iota(ids.begin(), ids.end(), document);
    const std::vector<uint8_t> targets{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
    masked ? writer.add(ids, targets) : writer.add(ids);
  }
  writer.write(folder / "a.tokens");
  const DataSource source{{folder / "a.tokens"}, 0};
  return TokenDataset::from_sources(std::span(&source, 1), *bytes, {.seq_length = 8, .separate_documents = separate});
}

int64_t counted(const Batch& batch) {
  int64_t count = 0;
  for (const int32_t target : batch.targets.to_vector<int32_t>()) count += target != kIgnoredTarget;
  return count;
}

struct Case {
  bool masked, separate;
};
class TargetCount : public ::testing::TestWithParam<Case> {};

TEST_P(TargetCount, of_a_training_step_is_that_of_its_batches) {
  const TempFolder folder;
  const auto memory = Memory::create();
  const TokenDataset data = documents(folder, GetParam().masked, GetParam().separate);
  for (int64_t step = 0; step < 4; ++step) {
    int64_t count = 0;
    for (int rank = 0; rank < 2; ++rank)
      for (int64_t micro_step = 0; micro_step < 2; ++micro_step) {
        const BatchLayout layout{.micro_batch = 1, .accumulation = 2, .world_size = 2, .rank = rank};
        count += counted(TrainSampler(data, layout, 3).batch(step, micro_step, *memory));
      }
    const TrainSampler sampler(data, {.micro_batch = 4}, 3);
    EXPECT_EQ(sampler.targets_in_step(step), count) << "step " << step;
    EXPECT_EQ(count == sampler.targets_per_step(), !GetParam().masked && !GetParam().separate);
  }
}

TEST_P(TargetCount, of_all_samples_is_their_sum) {
  const TempFolder folder;
  const TokenDataset whole = documents(folder, GetParam().masked, GetParam().separate);
  for (const TokenDataset& data : {whole, whole.with_remainder(), whole.split_tail(0.3).second}) {
    int64_t sum = 0;
    for (int64_t i = 0; i < data.num_samples(); ++i) sum += data.num_targets(i);
    EXPECT_EQ(data.num_targets(), sum);
  }
}

TEST_P(TargetCount, of_an_evaluation_is_that_of_its_batches) {
  const TempFolder folder;
  const auto memory = Memory::create();
  const EvaluationSampler sampler(documents(folder, GetParam().masked, GetParam().separate), {.micro_batch = 3});
  int64_t count = 0;
  for (int64_t i = 0; i < sampler.num_batches(); ++i) count += counted(sampler.batch(i, *memory));
  EXPECT_EQ(sampler.num_targets(), count);
}

INSTANTIATE_TEST_SUITE_P(Data, TargetCount,
                         ::testing::Values(Case{false, false}, Case{false, true}, Case{true, false}, Case{true, true}),
                         [](const auto& info) {
                           return std::string(info.param.masked ? "masked" : "whole") +
                                  (info.param.separate ? "_separate_documents" : "_joined_documents");
                         });

}  // namespace
}  // namespace nought::target_count_test
