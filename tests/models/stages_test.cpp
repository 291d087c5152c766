#include "nought/models/stages.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::stages_test {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<size_t> cut(const ModelConfig& config, const char* method, int stages) {
  return stage_begins(config, {.method = method}, stages);
}

TEST(Stages, uniform_cuts_give_the_first_stages_what_does_not_divide) {
  EXPECT_THAT(cut_by_layers(5, 3, 1, 1), ElementsAre(0, 3, 5, 7));
  EXPECT_THAT(cut_by_layers(2, 4, 1, 1), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(cut_by_layers(3, 1, 9, 9), ElementsAre(0, 5));
}

/// The layers of each stage, without the embedding and the head.
std::vector<int64_t> layers_of(int64_t layers, int stages, int64_t first_less, int64_t last_less) {
  const std::vector<size_t> begins = cut_by_layers(layers, stages, first_less, last_less);
  std::vector<int64_t> count;
  for (size_t i = 0; i + 1 < begins.size(); ++i) count.push_back(static_cast<int64_t>(begins[i + 1] - begins[i]));
  count.front() -= 1, count.back() -= 1;
  return count;
}

/// What torchtitan's generate_llm_fqn_per_model_part() gives for the same numbers.
TEST(Stages, the_first_and_the_last_stage_have_as_many_layers_less_as_torchtitan_gives_them) {
  EXPECT_THAT(layers_of(3, 2, 2, 2), ElementsAre(2, 1));
  EXPECT_THAT(layers_of(6, 4, 0, 0), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(layers_of(12, 4, 1, 3), ElementsAre(3, 4, 4, 1));
  EXPECT_THAT(layers_of(12, 4, 2, 2), ElementsAre(2, 4, 4, 2));
  EXPECT_THAT(layers_of(10, 4, 3, 3), ElementsAre(1, 4, 4, 1));
  EXPECT_THAT(layers_of(6, 3, 3, 0), ElementsAre(0, 3, 3)) << "the embedding alone";
  const std::vector<int64_t> llama_3 = layers_of(126, 16, 1, 1);
  EXPECT_EQ(llama_3.front(), 7);
  EXPECT_EQ(llama_3[1], 8);
  EXPECT_EQ(llama_3.back(), 7);
}

TEST(Stages, too_many_layers_less_are_refused_with_the_nearest_that_work) {
  const auto message = [](int64_t layers, int stages, int64_t first_less, int64_t last_less) {
    return message_of<ConfigError>([&] { cut_by_layers(layers, stages, first_less, last_less); });
  };
  EXPECT_EQ(
      message(6, 4, 5, 1),
      "pipeline_parallel_first_stage_less_layers = 5 and pipeline_parallel_last_stage_less_layers = 1: 4 stages of "
      "6 layers and these have 3 each; a stage needs 1, and neither may be more than it has; the nearest that work "
      "are 2 and 1");
  EXPECT_THAT(message(6, 7, 0, 0), HasSubstr("have 0 each"));
  EXPECT_THAT(message(6, 7, 0, 0), HasSubstr("the nearest that work are 0 and 1"));
  for (int64_t layers = 1; layers <= 9; ++layers)  // what is named does work, wherever every stage has a Unit
    for (int stages = 2; stages <= static_cast<int>(layers) + 2; ++stages)
      for (int64_t first = 0; first <= 12; ++first)
        for (int64_t last = 0; last <= 12; ++last) {
          const std::string refused = message(layers, stages, first, last);
          if (refused.empty()) continue;
          std::istringstream words(refused.substr(refused.rfind("work are ") + 9));
          std::string and_word;
          int64_t a = -1, b = -1;
          words >> a >> and_word >> b;
          ASSERT_EQ(message(layers, stages, a, b), "") << layers << " layers in " << stages << ": " << refused;
        }
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
  EXPECT_THAT(cut(llama(false), "parameters", 2), ElementsAre(0, 4, 8));
  EXPECT_THAT(cut(llama(true), "parameters", 2), ElementsAre(0, 4, 8)) << "a tied head reads the table, too";
  EXPECT_THAT(cut(llama(false), "parameters", 5), ElementsAre(0, 1, 3, 5, 7, 8));
  EXPECT_THAT(cut(llama(false), "uniform", 3), ElementsAre(0, 3, 6, 8));
  EXPECT_THAT(cut(llama(false), "type:BLOCK", 3), ElementsAre(0, 3, 5, 8));
  EXPECT_THAT(cut(llama(false), "parameters", 1), ElementsAre(0, 8));
}

TEST(Stages, every_stage_has_a_unit_that_the_expression_finds) {
  for (const char* method : {"type:block", "type:block\\.[0-4]", "type:block\\.[035]|head", "type:d"})
    for (int stages = 2; stages <= 8; ++stages) {
      const std::regex pattern(type_pattern(method));
      std::vector<std::string> names{"embedding"};
      for (int i = 0; i < 6; ++i) names.push_back("block." + std::to_string(i));
      names.emplace_back("head");
      const auto finds = [&](const std::string& name) { return std::regex_search(name, pattern); };
      const auto found = std::count_if(names.begin(), names.end(), finds);
      if (found < stages) {
        EXPECT_THAT(message_of<ConfigError>([&] { cut(llama(false), method, stages); }), HasSubstr("needs one; "))
            << method;
        continue;
      }
      const std::vector<size_t> begins = cut(llama(false), method, stages);
      for (size_t i = 0; i + 1 < begins.size(); ++i)
        EXPECT_TRUE(std::any_of(names.begin() + static_cast<std::ptrdiff_t>(begins[i]),
                                names.begin() + static_cast<std::ptrdiff_t>(begins[i + 1]), finds))
            << method << ": stage " << i << " of " << stages;
    }
}

TEST(Stages, costs_are_balanced_and_are_flops_where_nobody_has_measured) {
  StagePartition measured{.method = "profile", .costs = {1, 2, 2, 2, 2, 2, 2, 7}, .measured = true};
  EXPECT_THAT(stage_begins(llama(false), measured, 2), ElementsAre(0, 5, 8));
  EXPECT_EQ(with_costs(measured, llama(false), 16).costs, measured.costs) << "they stay";
  const StagePartition modelled = with_costs({.method = "profile"}, llama(false), 16);
  ASSERT_EQ(modelled.costs.size(), 8u);
  EXPECT_EQ(modelled.costs.front(), 0) << "a look-up";
  EXPECT_EQ(modelled.costs[1], 6.0 * 10304 + 6.0 * 32 * 16);
  EXPECT_FALSE(modelled.measured);
  EXPECT_THAT(stage_begins(llama(false), modelled, 2), ElementsAre(0, 5, 8));
  EXPECT_TRUE(with_costs({}, llama(false), 16).costs.empty()) << "\"parameters\" needs none";
  EXPECT_THROW(cut(llama(false), "profile", 2), Error) << "without costs";
}

TEST(Stages, cuts_that_cannot_be_are_refused_with_a_choice_that_works) {
  EXPECT_THAT(message_of<ConfigError>([] { cut(llama(false), "parameters", 9); }), HasSubstr("the most stages are 8"));
  EXPECT_EQ(message_of<ConfigError>([] { cut(llama(false), "type:transformer", 2); }),
            "pipeline partition \"type:transformer\": the expression is found in none of the Units' names (embedding, "
            "block.0 to block.5, head), and each of 2 stages needs one; \"type:block\" is found in 6");
  EXPECT_THAT(message_of<ConfigError>([] { cut(llama(false), "type:head", 2); }), HasSubstr("is found in 1 of the"));
  EXPECT_THAT(message_of<ConfigError>([] { cut(llama(false), "type:head", 7); }), HasSubstr("\"uniform\" counts all"));
}

}  // namespace
}  // namespace nought::stages_test
