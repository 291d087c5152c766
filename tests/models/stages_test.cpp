#include "nought/models/stages.h"

#include <numeric>
#include <random>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Stages, uniform_cuts_give_the_first_stages_what_does_not_divide) {
  EXPECT_THAT(cut_uniformly(7, 3), ElementsAre(0, 3, 5, 7));
  EXPECT_THAT(cut_uniformly(4, 4), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(cut_uniformly(5, 1), ElementsAre(0, 5));
}

double largest_of(std::span<const double> weights, const std::vector<size_t>& begins) {
  double largest = 0;
  for (size_t i = 0; i + 1 < begins.size(); ++i)
    largest = std::max(largest, std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(begins[i]),
                                                weights.begin() + static_cast<std::ptrdiff_t>(begins[i + 1]), 0.0));
  return largest;
}

/// The smallest largest sum of all cuts that give every stage a Unit.
double least_of_all_cuts(std::span<const double> weights, std::vector<size_t> begins, int stages) {
  if (stages == 1) {
    begins.push_back(weights.size());
    return largest_of(weights, begins);
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t next = begins.back() + 1; next + static_cast<size_t>(stages) - 1 <= weights.size(); ++next) {
    std::vector<size_t> longer = begins;
    longer.push_back(next);
    least = std::min(least, least_of_all_cuts(weights, longer, stages - 1));
  }
  return least;
}

TEST(Stages, no_cut_has_a_smaller_largest_stage) {
  std::mt19937 random(1);
  for (size_t units = 1; units <= 9; ++units)
    for (int stages = 1; stages <= static_cast<int>(units); ++stages) {
      std::vector<double> weights(units);
      for (double& weight : weights) weight = static_cast<double>(random() % 20);
      const std::vector<size_t> begins = cut_by_weight(weights, stages);
      ASSERT_EQ(begins.size(), static_cast<size_t>(stages) + 1);
      EXPECT_EQ(begins.front(), 0u);
      EXPECT_EQ(begins.back(), units);
      for (size_t i = 0; i + 1 < begins.size(); ++i) EXPECT_LT(begins[i], begins[i + 1]) << "every stage has a Unit";
      EXPECT_EQ(largest_of(weights, begins), least_of_all_cuts(weights, {0}, stages)) << units << " in " << stages;
    }
}

ModelConfig llama(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 640},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 64},
                                 {"num_hidden_layers", 6},
                                 {"num_attention_heads", 4},
                                 {"tie_word_embeddings", tied}});
}

/// A block has 4 * 32 * 32 + 3 * 32 * 64 + 64 = 10304 elements, the table 20480.
TEST(Stages, parameters_balance_blocks_against_the_embedding_and_the_head) {
  EXPECT_THAT(stage_begins(llama(false), "parameters", 2), ElementsAre(0, 4, 8));
  EXPECT_THAT(stage_begins(llama(true), "best", 2), ElementsAre(0, 4, 8)) << "a tied head reads the table, too";
  EXPECT_THAT(stage_begins(llama(false), "parameters", 5), ElementsAre(0, 1, 3, 5, 7, 8));
  EXPECT_THAT(stage_begins(llama(false), "uniform", 3), ElementsAre(0, 3, 6, 8));
  EXPECT_THAT(stage_begins(llama(false), "type:BLOCK", 3), ElementsAre(0, 3, 5, 8));
  EXPECT_THAT(stage_begins(llama(false), "parameters", 1), ElementsAre(0, 8));
}

TEST(Stages, cuts_that_cannot_be_are_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { stage_begins(llama(false), "parameters", 9); }),
              HasSubstr("the most stages are 8"));
  EXPECT_THAT(message_of<ConfigError>([] { check_partition("type:("); }), HasSubstr("not a regular expression"));
  EXPECT_THAT(message_of<ConfigError>([] { check_partition("profile"); }), HasSubstr("\"uniform\""));
}

}  // namespace
}  // namespace nought
