#include "nought/infer/sampling.h"

#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::sampling_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// Logits whose softmax at temperature 1 is exactly (up to rounding) the given distribution.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3.0f);
  return logits;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << "token " << i;
}

const std::vector<double> kDistribution{0.1, 0.4, 0.2, 0.3};

TEST(Sampling, temperature_one_is_the_softmax) {
  expect_near(token_probabilities(logits_of(kDistribution), {}), kDistribution);
}

TEST(Sampling, temperature_raises_probabilities_to_its_inverse_power) {
  // Temperature 1/2 squares: 0.01, 0.16, 0.04, 0.09 of 0.30.
  expect_near(token_probabilities(logits_of(kDistribution), {.temperature = 0.5}),
              {0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
}

TEST(Sampling, temperature_zero_is_greedy) {
  EXPECT_THAT(token_probabilities(logits_of(kDistribution), {.temperature = 0}), ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(sample_token(logits_of(kDistribution), {.temperature = 0, .seed = 9}, 5), 1);
}

TEST(Sampling, greedy_takes_the_first_of_equal_logits) {
  EXPECT_EQ(greedy_token(std::array{0.5f, 2.0f, 2.0f, 1.0f}), 1);
}

TEST(Sampling, top_k_keeps_the_k_most_probable) {
  expect_near(token_probabilities(logits_of(kDistribution), {.top_k = 2}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
  expect_near(token_probabilities(logits_of(kDistribution), {.top_k = 100}), kDistribution);
}

TEST(Sampling, top_k_of_equal_logits_keeps_exactly_k) {
  expect_near(token_probabilities(std::array{1.0f, 1.0f, 1.0f}, {.top_k = 2}), {0.5, 0.5, 0});
}

TEST(Sampling, top_p_keeps_the_fewest_tokens_that_reach_p) {
  expect_near(token_probabilities(logits_of(kDistribution), {.top_p = 0.65}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
  expect_near(token_probabilities(logits_of(kDistribution), {.top_p = 0.75}), {0, 0.4 / 0.9, 0.2 / 0.9, 0.3 / 0.9});
  expect_near(token_probabilities(logits_of(kDistribution), {.top_p = 1e-9}), {0, 1, 0, 0});
}

TEST(Sampling, tokens_whose_sum_is_exactly_p_are_enough) {
  expect_near(token_probabilities(std::array{1.0f, 1.0f, 1.0f, 1.0f}, {.top_p = 0.5}), {0.5, 0.5, 0, 0});
}

TEST(Sampling, top_p_counts_what_top_k_left) {
  // The first two of {0.4, 0.3, 0.2} hold 7/9 of the mass, which reaches 0.75; of all four they would not.
  expect_near(token_probabilities(logits_of(kDistribution), {.top_k = 3, .top_p = 0.75}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
}

TEST(Sampling, forbidden_tokens_are_never_drawn) {
  expect_near(token_probabilities(std::array{kForbidden, 0.0f, kForbidden, 0.0f}, {}), {0, 0.5, 0, 0.5});
}

TEST(Sampling, large_logits_do_not_overflow) {
  expect_near(token_probabilities(std::array{3e38f, 3e38f, -3e38f}, {.temperature = 1e-3}), {0.5, 0.5, 0});
}

TEST(Sampling, draws_follow_the_distribution) {
  constexpr int kDraws = 20000;
  for (const SamplingParameters& parameters :
       {SamplingParameters{.seed = 1}, SamplingParameters{.temperature = 2, .top_k = 3, .top_p = 0.9, .seed = 7}}) {
    const std::vector<double> expected = token_probabilities(logits_of(kDistribution), parameters);
    std::vector<int> counts(kDistribution.size());
    for (uint64_t i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(sample_token(logits_of(kDistribution), parameters, i))];
    for (size_t token = 0; token < counts.size(); ++token) {
      const double deviation = std::sqrt(expected[token] * (1 - expected[token]) / kDraws);
      EXPECT_NEAR(static_cast<double>(counts[token]) / kDraws, expected[token], 4 * deviation) << "token " << token;
    }
  }
}

TEST(Sampling, a_draw_depends_on_seed_and_position_alone) {
  const std::vector<float> logits(1000, 0.0f);
  const int64_t first = sample_token(logits, {.seed = 3}, 0), second = sample_token(logits, {.seed = 3}, 1);
  EXPECT_EQ(sample_token(logits, {.seed = 3}, 0), first);
  EXPECT_NE(first, second);
  EXPECT_NE(first, sample_token(logits, {.seed = 4}, 0));
}

TEST(Sampling, parameters_out_of_range_are_named) {
  const auto message = [](const SamplingParameters& parameters) { return [parameters] { parameters.validate(); }; };
  EXPECT_THAT(message({.temperature = -1}), ThrowsMessage<ConfigError>(HasSubstr("temperature must be")));
  EXPECT_THAT(message({.temperature = std::nan("")}), ThrowsMessage<ConfigError>(HasSubstr("temperature must be")));
  EXPECT_THAT(message({.top_k = -1}), ThrowsMessage<ConfigError>(HasSubstr("top_k must be >= 0, got -1")));
  EXPECT_THAT(message({.top_p = 0}), ThrowsMessage<ConfigError>(HasSubstr("top_p must be")));
  EXPECT_THAT(message({.top_p = 1.5}), ThrowsMessage<ConfigError>(HasSubstr("got 1.5")));
  EXPECT_THAT(message({.top_p = std::nan("")}), ThrowsMessage<ConfigError>(HasSubstr("top_p must be")));
}

TEST(Sampling, broken_logits_are_named) {
  EXPECT_THAT([] { greedy_token({}); }, ThrowsMessage<ShapeError>(HasSubstr("empty")));
  EXPECT_THAT(([] {
                greedy_token(std::array{0.0f, std::nanf("")});
              }),
              ThrowsMessage<Error>(HasSubstr("token 1 is nan")));
  EXPECT_THAT(([] { greedy_token(std::array{kForbidden, kForbidden}); }), ThrowsMessage<Error>(HasSubstr("-inf")));
}

TEST(Sampling, min_p_keeps_what_is_nearly_as_probable_as_the_best) {
  expect_near(token_probabilities(logits_of(kDistribution), {.min_p = 0.6}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
  expect_near(token_probabilities(logits_of(kDistribution), {.min_p = 1}), {0, 1, 0, 0});
  // At temperature 1/2 the ratios are squared: 0.0625, 1, 0.25, 0.5625.
  expect_near(token_probabilities(logits_of(kDistribution), {.temperature = 0.5, .min_p = 0.2}),
              {0, 0.16 / 0.29, 0.04 / 0.29, 0.09 / 0.29});
}

TEST(Sampling, tokens_exactly_p_times_as_probable_as_the_best_stay) {
  expect_near(token_probabilities(std::array{1.0f, 1.0f}, {.min_p = 1}), {0.5, 0.5});
}

TEST(Sampling, repetition_lowers_positive_and_negative_logits_once) {
  std::vector<float> logits{2, -1, 3, -4, 0};
  const std::vector<int32_t> ids{0, 1, 1, 0, 4};
  penalise_repetition(logits, ids, 2);
  EXPECT_THAT(logits, ElementsAre(1, -2, 3, -4, 0));
}

}  // namespace
}  // namespace nought::sampling_test
