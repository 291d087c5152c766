// Runs that learn from pairs of answers: the same on every layout, after a resume, and with a reference of their own.
#include "nought/train/pair_run.h"

#include <fstream>

#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/step_source.h"
#include "nought/train/validate_run.h"

namespace nought::pair_run_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::message_of;
using test::TempFolder;
using test::ToldRun;
using testing::Contains;
using testing::HasSubstr;

RunPlan plan_in(const TempFolder& folder, int64_t steps = 4) {
  RunPlan plan = test::plan_on_lines(folder, steps);
  std::string text;
  for (int i = 0; i < 24; ++i)
    text += fmt::format("{{\"prompt\": \"{} + {} =\", \"chosen\": \" {}\", \"rejected\": \" {} or so{}\"}}\n", i, i,
                        i + i, i + 1, std::string(static_cast<size_t>(i % 5), '.'));
  plan.data.sources = {{{folder.write("pairs.jsonl", text).string()}}};
  plan.data.format = CorpusFormat::preference;
  plan.data.validation_fraction = 0.2;
  plan.alignment.method = AlignmentMethod::dpo;
  plan.layout.seq_length = 32;
  plan.layout.micro_batch = 1, plan.layout.accumulation = 8;
  return plan;
}

class PairRuns : public test::InFolder {
 protected:
  RunPlan plan = plan_in(folder);
};

TEST_F(PairRuns, begin_with_equal_answers_and_draw_them_apart) {
  const ToldRun told = test::run_plan(plan);
  EXPECT_EQ(told.losses().front(), std::log(2.0)) << "policy and reference have the same bits";
  EXPECT_LT(told.losses().back(), 0.9 * std::log(2.0));
  const NamedNumbers& numbers = told.steps.back().of_answers;
  ASSERT_EQ(numbers.size(), 6U);
  EXPECT_EQ(numbers[3].first, "rewards/margins");
  EXPECT_GT(numbers[3].second, 0.1);
  EXPECT_NEAR(numbers[3].second, numbers[0].second - numbers[1].second, 1e-12);
  ASSERT_EQ(told.validations.size(), 1U);
  EXPECT_EQ(told.validations[0].second.of_answers.size(), 6U);
  EXPECT_GT(told.validations[0].second.targets, 0);
}

TEST_F(PairRuns, have_the_losses_of_one_rank_on_every_layout) {
  plan.alignment.ld_alpha = 0.5;
  const std::vector<double> one = test::run_plan(plan).losses();
  const auto expect_same = [&](const char* name, int ranks, const std::function<void(Layout&)>& change) {
    SCOPED_TRACE(name);
    TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    const ToldRun told = test::run_plan(other, {.ranks = ranks});
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(told.losses()[i], one[i], 1e-5);
    return told.losses();
  };
  const auto at_stage = [&](int stage) {
    return expect_same("stages", 2, [&](Layout& layout) { layout.accumulation = 4, layout.zero_stage = stage; });
  };
  EXPECT_EQ(at_stage(0), at_stage(1));
  EXPECT_EQ(at_stage(2), at_stage(3)) << "both reduce each micro-batch";
  expect_same("tp", 2, [](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same("cp", 2, [](Layout& layout) { layout.context_ranks = 2; });
  expect_same("pp", 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
  expect_same("4 ranks with unequal rows", 4, [](Layout& layout) { layout.accumulation = 2; });
  expect_same("one micro-batch", 1, [](Layout& layout) { layout.accumulation = 1, layout.micro_batch = 8; });
  expect_same("recompute", 1, [](Layout& layout) { layout.recompute = Recompute::full; });
}

TEST_F(PairRuns, go_on_bit_for_bit_and_find_the_reference_again) {
  plan.save_steps = 2;
  const ToldRun whole = test::run_plan(plan);
  const std::filesystem::path file = std::filesystem::path(plan.output_dir) / kReferenceFile;
  ASSERT_TRUE(std::filesystem::exists(file));
  test::expect_resumes(plan, whole, 2, 1);
  std::filesystem::remove(file);
  test::expect_resumes(plan, whole, 2, 1);  // it is computed again from the weights that the run began with
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(PairRuns, take_another_reference_and_other_methods) {
  const std::vector<double> own = test::run_plan(plan).losses();
  TempFolder second;
  RunPlan other = plan;
  other.alignment.ref_model = plan.output_dir;  // what the run before has made
  other.output_dir = (second / "out").string();
  const ToldRun told = test::run_plan(other);
  EXPECT_GT(told.losses().front(), std::log(2.0) + 0.1) << "its reference knows the answers already";
  for (const AlignmentMethod method : {AlignmentMethod::orpo, AlignmentMethod::cpo}) {
    TempFolder folder_of_method;
    RunPlan third = plan;
    third.output_dir = (folder_of_method / "out").string();
    third.alignment.method = method;
    third.alignment.likelihood = 1, third.alignment.likelihood_of_prompts = method == AlignmentMethod::orpo;
    third.alignment.loss.terms = {
        {method == AlignmentMethod::orpo ? PairLossType::odds_ratio : PairLossType::simpo, 1.0}};
    const ToldRun run = test::run_plan(third);
    EXPECT_LT(run.losses().back(), run.losses().front());
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(third.output_dir) / kReferenceFile));
  }
}

TEST_F(PairRuns, learn_from_answers_with_labels) {
  plan.alignment.method = AlignmentMethod::kto;
  plan.layout.micro_batch = 2, plan.layout.accumulation = 4;
  const ToldRun one = test::run_plan(plan);
  EXPECT_EQ(one.losses().front(), 0.5) << "policy and reference have the same bits";
  EXPECT_LT(one.losses().back(), 0.5);
  const NamedNumbers& numbers = one.steps.back().of_answers;
  EXPECT_EQ(numbers.front().first, "rewards/chosen");
  EXPECT_EQ(numbers.back().first, "kl");
  TempFolder second;
  plan.output_dir = (second / "out").string();
  plan.layout.accumulation = 2, plan.layout.zero_stage = 3;
  const ToldRun two = test::run_plan(plan, {.ranks = 2});
  for (size_t i = 0; i < one.losses().size(); ++i) EXPECT_NEAR(two.losses()[i], one.losses()[i], 1e-5);
  EXPECT_NEAR(two.steps.back().of_answers.back().second, numbers.back().second, 1e-4);
}

TEST_F(PairRuns, are_checked_before_they_begin) {
  const RunInputs inputs = validate_run(plan, StartMode::fresh, kDryRun);
  EXPECT_THAT(inputs.data.describe("bytes"), HasSubstr("19 pairs of answers"));
  EXPECT_EQ(inputs.steps_per_epoch, 3);
  plan.layout.accumulation = 30;
  EXPECT_THAT(message_of<ConfigError>([&] { validate_run(plan, StartMode::fresh, kDryRun); }),
              HasSubstr("has 19 pairs of answers, and one batch needs 30"));
}

}  // namespace
}  // namespace nought::pair_run_test
