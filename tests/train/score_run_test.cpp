// Runs that train a head which scores texts: reward models and classifiers, on every layout, and what they export.
#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/score_metrics.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought::score_run_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::message_of;
using test::TempFolder;
using test::ToldRun;
using testing::HasSubstr;

class ScoreRuns : public test::InFolder {
 protected:
  /// Texts of two letters, of which the first says the class.
  void classify(int64_t labels) {
    plan.alignment.method = AlignmentMethod::classify, plan.alignment.labels = labels;
    std::string text;
    for (int i = 0; i < 30; ++i)
      text += fmt::format("{{\"text\": \"{}{}\", \"label\": {}}}\n", std::string(1 + static_cast<size_t>(i % 4), 'x'),
                          static_cast<char>('a' + i % labels), i % labels);
    take(text, CorpusFormat::scored);
  }
  void reward() {
    plan.alignment.method = AlignmentMethod::reward;
    std::string text;
    for (int i = 0; i < 30; ++i)
      text += fmt::format("{{\"prompt\": \"{}\", \"chosen\": \" yes\", \"rejected\": \" no\"}}\n",
                          std::string(1 + static_cast<size_t>(i % 5), static_cast<char>('a' + i % 7)));
    take(text, CorpusFormat::preference);
  }
  void take(const std::string& text, CorpusFormat format) {
    plan.data.sources = {{{folder.write("data.jsonl", text).string()}}};
    plan.data.format = format, plan.data.validation_fraction = 0.2;
    plan.layout.seq_length = 32, plan.layout.micro_batch = 1, plan.layout.accumulation = 8;
  }
  ToldRun run_on(int ranks, const std::function<void(Layout&)>& change) {
    TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    return test::run_plan(other, {.ranks = ranks});
  }
  void expect_same_losses(const std::vector<double>& one, int ranks, const std::function<void(Layout&)>& change) {
    const std::vector<double> losses = run_on(ranks, change).losses();
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(losses[i], one[i], 1e-5);
  }
  static double number(const NamedNumbers& numbers, const std::string& name) {
    for (const auto& [key, value] : numbers)
      if (key == name) return value;
    return -1;
  }

  RunPlan plan = test::plan_on_lines(folder, 6);
};

TEST_F(ScoreRuns, learn_classes_on_every_layout) {
  classify(3);
  plan.save_steps = 3;
  const ToldRun told = test::run_plan(plan);
  EXPECT_LT(told.losses().back(), 0.7 * told.losses().front());
  EXPECT_GT(number(told.validations.back().second.of_answers, "accuracy"), 0.9);
  test::expect_resumes(plan, told, 3, 1);
  const std::vector<double> one = told.losses();
  for (const int stage : {0, 3})
    expect_same_losses(one, 2, [&](Layout& layout) { layout.accumulation = 4, layout.zero_stage = stage; });
  expect_same_losses(one, 2, [](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same_losses(one, 2, [](Layout& layout) { layout.tensor_ranks = 2, layout.sequence_parallel = true; });
  expect_same_losses(one, 2, [](Layout& layout) { layout.context_ranks = 2; });
  expect_same_losses(one, 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
  const ModelConfig exported = ModelConfig::from_folder(told.exported);
  ASSERT_TRUE(exported.classifier.has_value());
  EXPECT_EQ(exported.classifier->labels, 3);
}

TEST_F(ScoreRuns, learn_which_answer_is_better_and_go_on_from_what_they_export) {
  reward();
  const ToldRun told = test::run_plan(plan);
  EXPECT_LT(told.losses().back(), told.losses().front());
  EXPECT_GT(number(told.validations.back().second.of_answers, "margin"), 0);
  expect_same_losses(told.losses(), 2, [](Layout& layout) { layout.accumulation = 4, layout.zero_stage = 3; });
  TempFolder second;
  plan.model_dir = told.exported.string(), plan.model_config = Json();
  plan.output_dir = (second / "out").string();
  EXPECT_LT(test::run_plan(plan).losses().front(), told.losses().front()) << "its head was taken up";
  plan.alignment = {};
  plan.data.format.reset();
  EXPECT_THAT(message_of<ConfigError>([&] { validate_run(plan, StartMode::fresh, kDryRun); }),
              HasSubstr("scores texts (1 labels) and predicts no tokens"));
}

TEST(ScoreMetrics, are_those_of_their_problem) {
  ScoreMetrics classes(ProblemType::single_label_classification, 3);
  for (const auto& [scores, wanted] : std::vector<std::pair<std::vector<double>, double>>{
           {{2, 1, 0}, 0}, {{2, 1, 0}, 1}, {{0, 1, 0}, 1}, {{0, 3, 0}, 1}})
    classes.add(scores, std::vector{wanted});
  EXPECT_EQ(classes.numbers()[0], std::pair(std::string("accuracy"), 0.75));
  EXPECT_NEAR(classes.numbers()[1].second, (2.0 / 3 + 0.8) / 2, 1e-12) << "the third class does not occur";
  ScoreMetrics numbers(ProblemType::regression, 1);
  numbers.add(std::vector{1.0}, std::vector{3.0}), numbers.add(std::vector{1.0}, std::vector{1.0});
  EXPECT_EQ(numbers.numbers()[0].second, 2);
  ScoreMetrics labels(ProblemType::multi_label_classification, 2);
  labels.add(std::vector{1.0, -1.0}, std::vector{1.0, 0.0}), labels.add(std::vector{1.0, 1.0}, std::vector{1.0, 0.0});
  EXPECT_EQ(labels.numbers()[0].second, 0.5);
  EXPECT_NEAR(labels.numbers()[1].second, 0.8, 1e-12);
  EXPECT_EQ(reward_metrics(std::vector{1.0, 0.5, -1.0, 2.0})[3], std::pair(std::string("accuracy"), 0.5));
}

}  // namespace
}  // namespace nought::score_run_test
