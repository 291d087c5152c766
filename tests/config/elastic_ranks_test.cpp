// Numbers of ranks with one global batch: by the section elasticity, or by what divides the batch.
#include "nought/config/elastic_ranks.h"

#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::elastic_ranks_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RunConfig config_of(const char* text, const std::vector<std::string>& overrides = {}) {
  return make_run_config(parse_json(text, "RUN.json"), "RUN.json", overrides);
}

std::vector<int> numbers(const ElasticRanks& ranks) {
  std::vector<int> result;
  for (const ElasticRanks::Choice& choice : ranks.choices) result.push_back(choice.ranks);
  return result;
}

/// Every choice makes the batch, with what it is told.
void expect_one_batch(const char* text, const std::vector<std::string>& overrides, const ElasticRanks& ranks) {
  for (const ElasticRanks::Choice& choice : ranks.choices) {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), choice.settings.begin(), choice.settings.end());
    EXPECT_EQ(test::plan_of(text, choice.ranks, all).layout.train_batch(), ranks.train_batch) << choice.ranks;
  }
}

constexpr const char* kElastic = R"({"data": {"seq_length": 64}, "training": {"output_dir": "out"}, "deepspeed":
    {"elasticity": {"enabled": true, "max_train_batch_size": 8, "micro_batch_sizes": [1, 2], "max_gpus": 4,
    "version": 0.1}}})";

TEST(ElasticRanks, are_those_of_the_section) {
  const ElasticRanks ranks = elastic_ranks(config_of(kElastic), 0);
  EXPECT_TRUE(ranks.by_section);
  EXPECT_EQ(ranks.train_batch, 8);
  EXPECT_THAT(numbers(ranks), ElementsAre(1, 2, 4));
  expect_one_batch(kElastic, {}, ranks);
  EXPECT_EQ(ranks.largest(3)->ranks, 2);
  EXPECT_EQ(ranks.largest(9)->ranks, 4);
  EXPECT_EQ(ranks.largest(0), nullptr);
  const std::vector<std::string> shared{"training.parallelism_config.tp_size=2"};
  EXPECT_THAT(numbers(elastic_ranks(config_of(kElastic, shared), 2)), ElementsAre(2, 4, 8));
}

constexpr const char* kPlain = R"({"data": {"seq_length": 64}, "training": {"output_dir": "out",
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}, "deepspeed": {"gradient_accumulation_steps": 1}})";

TEST(ElasticRanks, divide_the_batch_where_no_section_says_more) {
  const ElasticRanks ranks = elastic_ranks(config_of(kPlain), 3);
  EXPECT_FALSE(ranks.by_section);
  EXPECT_EQ(ranks.train_batch, 12);
  EXPECT_THAT(numbers(ranks), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(ranks.choices[2].settings, IsEmpty());  // the run as it is
  EXPECT_EQ(ranks.choices[1].settings[0], "training.per_device_train_batch_size=3");
  expect_one_batch(kPlain, {}, ranks);
}

TEST(ElasticRanks, leave_a_batch_that_is_given_as_a_whole_alone) {
  const std::vector<std::string> whole{"deepspeed.train_batch_size=8", "deepspeed.gradient_accumulation_steps=auto",
                                       "training.gradient_accumulation_steps=2",
                                       "training.per_device_train_batch_size=2"};
  const ElasticRanks ranks = elastic_ranks(config_of(kPlain, whole), 2);
  EXPECT_THAT(numbers(ranks), ElementsAre(1, 2, 4, 8));
  expect_one_batch(kPlain, whole, ranks);
}

}  // namespace
}  // namespace nought::elastic_ranks_test
