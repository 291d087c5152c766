#include "nought/checkpoint/best_model.h"

#include <cmath>
#include <limits>

#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::best_model_test {
namespace {

NOUGHT_FILE_SIZE(small);

Evaluation of_loss(double loss) { return {.loss = loss, .targets = 10, .text_bytes = 20}; }

TEST(BestModel, has_the_number_that_the_metric_names) {
  const Evaluation evaluation = of_loss(2);
  EXPECT_EQ(value_of(evaluation, EvalMetric::loss), 2);
  EXPECT_EQ(value_of(evaluation, EvalMetric::perplexity), evaluation.perplexity());
  EXPECT_EQ(value_of(evaluation, EvalMetric::bits_per_token), evaluation.bits_per_token());
  EXPECT_EQ(value_of(evaluation, EvalMetric::bits_per_byte), evaluation.bits_per_token() / 2);
  EXPECT_TRUE(std::isnan(value_of(evaluation, EvalMetric::reward)));
  EXPECT_EQ(value_of({.of_answers = {{"reward_std", 1}, {"reward", 0.5}}}, EvalMetric::reward), 0.5);
}

TEST(BestModel, is_the_first_with_the_least_or_the_greatest_value) {
  for (const bool greater : {false, true}) {
    const BestModelPlan plan{.greater_is_better = greater};
    std::optional<BestModel> best;
    int64_t step = 0;
    for (const double loss : {2.0, 1.0, 3.0, 1.0, 3.0}) best = best_with(best, ++step, of_loss(loss), plan);
    ASSERT_TRUE(best.has_value());
    EXPECT_EQ(best->step, greater ? 3 : 2);
    EXPECT_EQ(best->value, greater ? 3 : 1);
  }
}

TEST(BestModel, is_never_one_whose_value_is_no_number) {
  const Evaluation none = of_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(best_with({}, 1, none, {}).has_value());
  const BestModel best{.step = 1, .value = 5};
  EXPECT_EQ(best_with(best, 2, none, {}), best);
}

TEST(BestModel, is_written_and_read_with_its_metric) {
  const BestModel best{.step = 40, .metric = EvalMetric::perplexity, .value = 1.0 / 3};
  EXPECT_EQ(best.json().at("metric"), "eval_perplexity") << "as metrics.jsonl calls it";
  EXPECT_EQ(BestModel::from_json(best.json()), best);
  EXPECT_EQ(best.str(), "eval_perplexity 0.3333");
}

}  // namespace
}  // namespace nought::best_model_test
