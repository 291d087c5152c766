// Runs that learn by proximal policy optimization, of a policy and a value model, on every layout.
#include <numeric>

#include "support/in_folder.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/io/files.h"
#include "nought/train/judge_policy.h"
#include "nought/train/policy_run.h"
#include "nought/train/validate_run.h"
#include "nought/train/value_model.h"

namespace nought::ppo_run_test {
namespace {

namespace fs = std::filesystem;

NOUGHT_FILE_SIZE(medium);

using test::message_of;
using test::TempFolder;
using test::ToldRun;
using testing::HasSubstr;

class PpoRuns : public test::InFolder {
 protected:
  PpoRuns() {
    std::string text;
    for (int i = 0; i < 16; ++i)
      text += fmt::format("{{\"prompt\": \"{}\"}}\n",
                          std::string(1 + static_cast<size_t>(i % 3), static_cast<char>('a' + i % 5)));
    plan = test::plan_on_lines(folder, 6, 3e-3);
    plan.data.sources = {{{folder.write("prompts.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::prompts;
    plan.layout.seq_length = 16, plan.layout.micro_batch = 2, plan.layout.accumulation = 4;
    // A quarter of all tokens ends an answer: ranks that write different ones make different numbers of passes.
    Json ends = Json::array();
    for (int id = 0; id < 64; ++id) ends.push_back(id);
    plan.model_config["eos_token_id"] = ends;
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::ppo, alignment.ppo.emplace();
    alignment.generations = alignment.generations_to_validate = 1, alignment.iterations = 2;
    alignment.policy_loss.max_completion_length = 6;
    alignment.ppo->options.missing_eos_penalty = 0.5;
    RewardConfig letters;
    letters.type = RewardType::regex;
    letters.pattern.value = "[a-z]", letters.pattern.given = true;
    alignment.rewards = {letters}, alignment.reward_weights = {1};
  }
  ToldRun run_on(int ranks, const std::function<void(Layout&)>& change) {
    TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    return test::run_plan(other, {.ranks = ranks});
  }
  /// What judge_policy() says of a checkpoint.
  Evaluation judged(const fs::path& checkpoint) const {
    const test::TrainingCase of{
        .model = model_config_of(plan), .mesh = {}, .load = [&](ShardedModel& model, Decoder& decoder) {
          model.load(Checkpoint(checkpoint, decoder));
        }};
    return of.on_rank(0, [&](test::TrainingRank& rank) {
      Engine engine(rank.model);
      const auto tokenizer = tokenizer_of(plan.data);
      const RunData data = open_data(plan, *tokenizer);
      return judge_policy(plan, data, {.micro_batch = plan.layout.micro_batch, .accumulation = 4}, rank.model,
                          rank.decoder, engine, *tokenizer);
    });
  }
  static double number(const StepReport& step, const std::string& name) {
    for (const auto& [key, value] : step.of_answers)
      if (key == name) return value;
    ADD_FAILURE() << name;
    return 0;
  }
  static std::string bytes_of(const fs::path& model) { return bytes_if_there(model / "model.safetensors").value(); }
  void expect_same(const ToldRun& one, const std::function<void(Layout&)>& change) {
    const ToldRun other = run_on(2, change);
    ASSERT_EQ(other.steps.size(), one.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss, one.steps[i].loss, 1e-5);
      for (const auto& [name, value] : one.steps[i].of_answers)
        if (name != "eps") {
          EXPECT_NEAR(number(other.steps[i], name), value, 2e-5) << name;
        }
    }
  }

  RunPlan plan;
};

TEST_F(PpoRuns, agree_on_every_layout) {
  plan.alignment.ppo->mini_batches = 2;
  const ToldRun told = test::run_plan(plan);
  const StepReport &first = told.steps[0], &later = told.steps[3];
  EXPECT_EQ(number(first, "objective/kl"), 0);  // to the bit
  EXPECT_EQ(number(first, "policy/clipfrac_avg"), 0);
  EXPECT_NEAR(number(first, "val/ratio"), 1, 1e-6);
  EXPECT_GT(number(later, "policy/approxkl_avg"), 0);
  EXPECT_EQ(number(later, "episode"), 16) << "four steps learn from the same answers";
  EXPECT_EQ(number(told.steps[4], "episode"), 32);
  EXPECT_NE(number(told.steps[4], "objective/kl"), 0);
  EXPECT_NEAR(first.loss, number(first, "loss/policy_avg") + 0.1 * number(first, "loss/value_avg"), 1e-6);
  for (const int stage : {1, 3})
    expect_same(told, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect_same(told, [](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same(told, [](Layout& layout) { layout.pipeline.ranks = 2; });
  expect_same(told, [](Layout& layout) { layout.context_ranks = 2; });
  if (!test::runs_everything()) return;
  for (const int stage : {0, 2})
    expect_same(told, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
}

TEST_F(PpoRuns, resume_to_the_bit_between_any_two_steps) {
  plan.alignment.ppo->mini_batches = 2, plan.save_steps = 1, plan.max_steps = 5;
  const ToldRun told = test::run_plan(plan);
  const fs::path out = plan.output_dir;
  const auto weights = [&] { return bytes_of(out / kValueModelFolder); };
  const std::string policy = bytes_of(out), values = weights();
  EXPECT_NE(policy, values);
  for (const int64_t from : {3, 4}) {  // amid the steps of the same answers, and behind them
    test::expect_resumes(plan, told, from, 1);
    EXPECT_EQ(bytes_of(out), policy);
    EXPECT_EQ(weights(), values);
  }
  EXPECT_FALSE(fs::exists(out / ".value_model"));
  fs::remove_all(checkpoint_path(out, 5) / kValueModelFolder);
  EXPECT_THAT(message_of<IoError>([&] { test::run_plan(plan, {.mode = StartMode::resume}); }),
              HasSubstr("has no value_model"));
}

TEST_F(PpoRuns, are_rewarded_more_after_some_steps) {
  plan = [&] {
    RunPlan other = plan;
    const RunPlan longer = test::plan_on_lines(folder, 80, 3e-3);
    other.max_steps = longer.max_steps, other.schedule = longer.schedule;
    return other;
  }();
  plan.layout.micro_batch = 64, plan.layout.accumulation = 1;
  plan.data.sources[0].files.resize(1, plan.data.sources[0].files[0]);
  for (int i = 0; i < 3; ++i) plan.data.sources.push_back(plan.data.sources[0]);
  const ToldRun told = test::run_plan(plan);
  double before = 0, after = 0;
  for (size_t i = 0; i < 5; ++i)
    before += number(told.steps[i], "reward") / 5, after += number(told.steps[75 + i], "reward") / 5;
  EXPECT_GT(after, before + 0.2);
  EXPECT_LT(number(told.steps.back(), "loss/value_avg"), number(told.steps.front(), "loss/value_avg"));
  const std::string lines = read_text(fs::path(plan.output_dir) / kCompletionsFile);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 40 * 64);
}

TEST_F(PpoRuns, validate_with_prompts_that_are_held_out) {
  plan.data.validation_fraction = 0.25, plan.layout.evaluation_rows = 3, plan.max_steps = 2;
  plan.layout.micro_batch = 1;
  plan.eval_strategy = EvalStrategy::steps, plan.eval_steps = 1, plan.save_steps = 1;
  plan.best = BestModelPlan{.metric = EvalMetric::reward, .greater_is_better = true};
  const ToldRun told = test::run_plan(plan);
  ASSERT_EQ(told.validations.size(), 2U);
  const Evaluation& first = told.validations[0].second;
  const auto reward = [](const Evaluation& of) { return of.of_answers.at(0).second; };
  EXPECT_EQ(first.of_answers.at(0).first, "reward");
  EXPECT_GT(first.loss, 0) << "advantages add up to nothing: what is left is the loss of the values";
  const bool is_first = reward(first) >= reward(told.validations[1].second);
  EXPECT_THAT(told.events, testing::Contains(is_first ? "best 1" : "best 2"));
  EXPECT_EQ(reward(judged(checkpoint_path(plan.output_dir, 2))), reward(told.validations[1].second));
  const ToldRun other = run_on(2, [](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
  for (const size_t at : {size_t{0}, size_t{1}}) {
    EXPECT_NEAR(other.validations.at(at).second.loss, told.validations[at].second.loss, 1e-5);
    EXPECT_EQ(reward(other.validations[at].second), reward(told.validations[at].second));
  }
}

TEST_F(PpoRuns, begin_with_the_values_of_a_reward_model) {
  RunPlan judge = test::plan_on_lines(folder, 1);
  judge.data.sources = {{{folder
                              .write("pairs.jsonl",
                                     "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                                     "{\"prompt\": \"b\", \"chosen\": \"b\", \"rejected\": \"c\"}\n")
                              .string()}}};
  judge.data.format = CorpusFormat::preference;
  judge.model_config["num_hidden_layers"] = 1;
  judge.alignment.method = AlignmentMethod::reward;
  judge.output_dir = (folder / "judge").string();
  test::run_plan(judge);
  RewardConfig model;
  model.type = RewardType::reward_model, model.path.value = judge.output_dir;
  plan.alignment.rewards = {model}, plan.max_steps = 1, plan.schedule.peak_lr = 0;
  plan.alignment.ppo->value_model = judge.output_dir, plan.alignment.ppo->value_place = "alignment.value_model";
  const ToldRun told = test::run_plan(plan);
  EXPECT_EQ(told.steps.size(), 1U);
  EXPECT_EQ(bytes_of(fs::path(plan.output_dir) / kValueModelFolder), bytes_of(judge.output_dir)) << "at a rate of 0";
  plan.model_config["vocab_size"] = 300;
  EXPECT_THAT(message_of<ConfigError>([&] { check_value_model(plan, 300, *tokenizer_of(plan.data)); }),
              HasSubstr("alignment.value_model: " + judge.output_dir + ": the model has 256 tokens"));
}

TEST_F(PpoRuns, are_refused_where_they_can_not_learn) {
  RunPlan other = plan;
  other.alignment.rewards = {}, other.alignment.reward_weights = {};
  const auto why = [&] { return message_of<ConfigError>([&] { validate_run(other, StartMode::fresh, kDryRun); }); };
  EXPECT_THAT(why(), HasSubstr("nothing judges the answers: add alignment.reward_model"));
  other = plan, other.alignment.ppo->stop_token_id = 1000;
  EXPECT_THAT(why(), HasSubstr("alignment.stop_token_id is 1000, and the vocabulary of the model has 256 tokens"));
}

}  // namespace
}  // namespace nought::ppo_run_test
