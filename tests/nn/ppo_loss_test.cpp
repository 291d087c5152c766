// Proximal policy optimization in plain numbers: those of TRL, of tests/golden/align/ppo, and what golden data lacks.
#include "nought/nn/ppo_loss.h"

#include <cmath>
#include <string>

#include "support/golden.h"
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/io/files.h"

namespace nought::ppo_loss_test {
namespace {

/// Numbers for each token of rows of a file.
struct Rows {
  std::vector<float> values;
  size_t length;

  Rows(const SafetensorsFile& file, const std::string& name)
      : values(file.load(name, *Context::reference().memory).to_vector<float>()),
        length(static_cast<size_t>(file.at(name).shape[1])) {}
  std::span<const float> of(size_t row, size_t count) const { return std::span(values).subspan(row * length, count); }
  float at(size_t row, size_t t) const { return values[row * length + t]; }
};

struct Golden {
  SafetensorsFile file{test::golden_folder("align/ppo") + "/golden.safetensors"};
  Json meta = Json::parse(read_text(test::golden_folder("align/ppo") + "/meta.json"));
  std::vector<int64_t> lengths = file.load("response_length", *Context::reference().memory).to_vector<int64_t>();
  std::vector<float> scores = file.load("scores", *Context::reference().memory).to_vector<float>();

  PpoOptions options(KlEstimator estimator) const {
    return {.kl_coef = meta.at("kl_coef"),
            .kl_estimator = estimator,
            .gamma = meta.at("gamma"),
            .lam = meta.at("lam"),
            .clip = meta.at("cliprange"),
            .value_clip = meta.at("cliprange_value"),
            .value_coef = meta.at("vf_coef")};
  }
  double number(const std::string& name) const { return file.load(name, *Context::reference().memory).item(); }
};

void expect_golden(const Golden& golden, KlEstimator estimator) {
  const std::string kind(enum_name(estimator));
  SCOPED_TRACE(kind);
  const PpoOptions options = golden.options(estimator);
  const Rows written(golden.file, "logprobs"), known(golden.file, "ref_logprobs"), values(golden.file, "values"),
      now(golden.file, "new_logprobs"), values_now(golden.file, "new_values");
  std::vector<PpoAnswer> answers;
  for (size_t row = 0; row < golden.lengths.size(); ++row) {
    const auto tokens = static_cast<size_t>(golden.lengths[row]);
    answers.push_back({.written = written.of(row, tokens),
                       .known = known.of(row, tokens),
                       .values = values.of(row, std::min(tokens + 1, values.length)),
                       .score = golden.scores[row]});
  }
  const std::vector<PpoWorth> worth = worth_of(options, answers);
  const Rows rewards(golden.file, kind + ".rewards"), advantages(golden.file, kind + ".advantages"),
      returns(golden.file, kind + ".returns"), slopes(golden.file, kind + ".grad.new_logprobs"),
      value_slopes(golden.file, kind + ".grad.new_values");
  double loss = 0, value_loss = 0, tokens = 0, places = 0;
  for (const PpoAnswer& answer : answers)
    tokens += double(answer.written.size()), places += double(answer.values.size());
  for (size_t row = 0; row < answers.size(); ++row) {
    for (size_t t = 0; t < worth[row].advantages.size(); ++t) {
      const double advantage = worth[row].advantages[t];
      EXPECT_NEAR(advantage, advantages.at(row, t), 5e-6);
      const PpoTerm term = ppo_policy_term(options, double{now.at(row, t)} - double{written.at(row, t)}, advantage);
      loss += term.loss / tokens;
      EXPECT_NEAR(term.slope / tokens, slopes.at(row, t), 5e-6);
    }
    for (size_t t = 0; t < worth[row].returns.size(); ++t) {
      EXPECT_NEAR(worth[row].rewards[t], rewards.at(row, t), 5e-6);
      EXPECT_NEAR(worth[row].returns[t], returns.at(row, t), 5e-6);
      const PpoTerm term = ppo_value_term(options, values_now.at(row, t), values.at(row, t), worth[row].returns[t]);
      value_loss += term.loss / places;
      EXPECT_NEAR(options.value_coef * term.slope / places, value_slopes.at(row, t), 5e-6);
    }
  }
  EXPECT_NEAR(loss, golden.number(kind + ".policy_loss"), 5e-6);
  EXPECT_NEAR(value_loss, golden.number(kind + ".value_loss"), 5e-6);
}

TEST(PpoLoss, is_the_golden_one_with_both_estimators_of_the_divergence) {
  const Golden golden;
  expect_golden(golden, KlEstimator::k1);
  expect_golden(golden, KlEstimator::k3);
}

TEST(PpoLoss, whitened_rewards_keep_their_mean_and_have_variance_one) {
  const std::vector<float> logs{-1, -2, -1.5F}, values{0.1F, -0.2F, 0.3F, 0};
  const std::vector<PpoAnswer> answers{{.written = logs, .known = {}, .values = values, .score = 2},
                                       {.written = logs, .known = {}, .values = values, .score = -1}};
  PpoOptions options;
  options.whitens_rewards = true;
  double sum = 0, squares = 0;
  for (const PpoWorth& worth : worth_of(options, answers))
    for (const double reward : worth.rewards) sum += reward, squares += reward * reward;
  const double mean = sum / 8;
  EXPECT_NEAR(mean, (2 - 1) / 8.0, 1e-12);
  EXPECT_NEAR((squares - 8 * mean * mean) / 7, 1, 1e-6);
}

TEST(PpoLoss, without_a_reference_the_score_alone_is_the_reward) {
  const std::vector<float> logs{-1, -2}, values{0, 0};
  const PpoWorth worth =
      worth_of({}, std::vector<PpoAnswer>{{.written = logs, .known = {}, .values = values, .score = 3}}).front();
  EXPECT_EQ(worth.rewards, (std::vector<double>{0, 3}));
  EXPECT_EQ(worth.kl, 0);
  EXPECT_NEAR(worth.returns[0], 0.95 * 3, 1e-12);
}

TEST(PpoLoss, slopes_are_those_of_the_losses) {
  const PpoOptions options;
  constexpr double kStep = 1e-6;
  for (const double x : {-0.5, -0.1, 0.07, 0.4})
    for (const double other : {-1.3, 0.8}) {
      const auto policy = [&](double at) { return ppo_policy_term(options, at, other); };
      EXPECT_NEAR(policy(x).slope, (policy(x + kStep).loss - policy(x - kStep).loss) / (2 * kStep), 1e-6);
      const auto value = [&](double at) { return ppo_value_term(options, at, 0, other); };
      EXPECT_NEAR(value(x).slope, (value(x + kStep).loss - value(x - kStep).loss) / (2 * kStep), 1e-6);
    }
  EXPECT_TRUE(ppo_policy_term(options, 0.5, 1).is_clipped);
  EXPECT_FALSE(ppo_policy_term(options, 0.5, -1).is_clipped);
  EXPECT_TRUE(ppo_value_term(options, 0.5, 0, 0.6).is_clipped);
}

}  // namespace
}  // namespace nought::ppo_loss_test
