// Reward models that judge the answers of a run: their scores on every layout, what they do in a run, and those that
// are refused.
#include "nought/train/reward_model.h"

#include <fstream>

#include "support/golden.h"
#include "support/in_folder.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/files.h"
#include "nought/train/probe_scores.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought::reward_model_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::MeshLayout;
using test::message_of;
using test::ToldRun;
using test::TrainingRank;
using testing::HasSubstr;

RewardConfig judge(const std::string& folder) {
  RewardConfig config;
  config.type = RewardType::reward_model;
  config.path.value = folder, config.path.given = true;
  return config;
}

/// What transformers' model gives the texts of tests/golden/align/reward.
void expect_golden_scores_on(const MeshLayout& mesh) {
  const std::string folder = test::golden_folder("align/reward");
  const test::TrainingCase other{.mesh = mesh};
  SCOPED_TRACE(mesh.str());
  other.on_rank(0, [&](TrainingRank& rank) {
    RunPlan plan;
    plan.layout.ranks = mesh.ranks(), plan.layout.zero_stage = mesh.stage;
    plan.layout.context_ranks = mesh.sizes.context, plan.layout.tensor_ranks = mesh.sizes.tensor;
    plan.layout.pipeline = mesh.pipeline();
    RewardModel model(plan, judge(folder + "/model"), rank.mesh, rank.context);
    const ScoreInput input = read_score_input(rank.context, folder + "/golden.safetensors",
                                              reward_model_config(plan, judge(folder + "/model")), /*pairs=*/true);
    const std::vector<Batch> batches =
        probe_batches(std::ssize(input.ids), rank.mesh.group(Group::samples), 1, [&](Interval own) {
          std::vector<JudgedAnswer> texts;
          for (int64_t row = own.begin; row < own.end; ++row)
            texts.push_back({.ids = input.ids[static_cast<size_t>(row)], .number = row});
          return batch_of_answers(*rank.context.memory, texts, {.scored = true, .pad_token_id = model.pad_token_id()});
        });
    const std::vector<double> scores = model.scores(
        [&](const auto& take) {
          for (const Batch& batch : batches) take(batch);
        },
        std::ssize(input.ids));
    const std::vector<float> wanted =
        SafetensorsFile(folder + "/golden.safetensors").load("logits", *rank.context.memory).to_vector<float>();
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(scores.at(i), wanted[i], 5e-5) << i;
    return 0;
  });
}

TEST(RewardModel, gives_the_scores_of_transformers_on_every_layout) {
  expect_golden_scores_on({});
  expect_golden_scores_on(test::sharded(2, 3));
  if (!test::runs_everything()) return;
  for (const int stage : {0, 1, 2}) expect_golden_scores_on(test::sharded(2, stage));
  expect_golden_scores_on({.sizes = {.context = 2}});
  expect_golden_scores_on({.sizes = {.pipeline = 2}});
}

class RewardModelRuns : public test::InFolder {
 protected:
  RewardModelRuns() {
    std::string prompts, pairs;
    for (int i = 0; i < 16; ++i) {
      const std::string prompt(1 + static_cast<size_t>(i % 3), static_cast<char>('a' + i % 5));
      prompts += fmt::format("{{\"prompt\": \"{}\"}}\n", prompt);
      pairs += fmt::format("{{\"prompt\": \"{}\", \"chosen\": \"yes\", \"rejected\": \"no\"}}\n", prompt);
    }
    prompts_ = folder.write("prompts.jsonl", prompts).string();
    RunPlan first = plan;
    first.max_steps = 1;
    first.alignment.method = AlignmentMethod::reward;
    first.data.sources = {{{folder.write("pairs.jsonl", pairs).string()}}};
    first.data.format = CorpusFormat::preference;
    first.layout.seq_length = 16, first.layout.micro_batch = 2;
    first.output_dir = (folder / "reward").string();
    test::run_plan(first);
    plan.data.sources = {{{prompts_}}};
    plan.data.format = CorpusFormat::prompts;
    plan.layout.seq_length = 16, plan.layout.micro_batch = 4, plan.layout.accumulation = 4;
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::grpo, alignment.generations = 4;
    alignment.policy_loss.max_completion_length = 6;
    RewardConfig letters;
    letters.type = RewardType::regex;
    letters.pattern.value = "[a-z]", letters.pattern.given = true;
    alignment.rewards = {letters, judge(first.output_dir)}, alignment.reward_weights = {0, 2};
  }
  std::string why(const std::string& reward) const {
    RunPlan other = plan;
    other.alignment.rewards[1] = judge(reward);
    return message_of<ConfigError>([&] { validate_run(other, StartMode::fresh, kDryRun); });
  }

  std::string prompts_;
  RunPlan plan = test::plan_on_lines(folder, 2);
};

TEST_F(RewardModelRuns, learn_from_its_scores_on_every_layout) {
  const auto number = [](const StepReport& step, const std::string& name) {
    for (const auto& [key, value] : step.of_answers)
      if (key == name) return value;
    return -1e9;
  };
  const ToldRun told = test::run_plan(plan);
  for (const StepReport& step : told.steps) {
    EXPECT_GT(number(step, "rewards/reward_model/std"), 0);
    EXPECT_NEAR(number(step, "reward"), 2 * number(step, "rewards/reward_model/mean"), 1e-9);
  }
  const auto expect_same = [&](const std::function<void(Layout&)>& change) {
    const test::TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    const ToldRun shared = test::run_plan(other, {.ranks = 2});
    for (size_t i = 0; i < told.steps.size(); ++i)
      EXPECT_NEAR(number(shared.steps[i], "reward"), number(told.steps[i], "reward"), 1e-5);
  };
  expect_same([](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
  if (!test::runs_everything()) return;
  expect_same([](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same([](Layout& layout) { layout.context_ranks = 2; });
  expect_same([](Layout& layout) { layout.pipeline.ranks = 2; });
}

TEST_F(RewardModelRuns, refuse_models_that_give_no_reward) {
  const std::string folder_of = plan.alignment.rewards[1].path.value;
  EXPECT_EQ(message_of<ConfigError>([&] { validate_run(plan, StartMode::fresh, kDryRun); }), "");
  const auto with = [&](const std::string& name, const std::string& key, const Json& value) {
    Json config = Json::parse(read_text(std::filesystem::path(folder_of) / "config.json"));
    config[key] = value;
    folder.write(name + "/config.json", config.dump());
    return why((folder / name).string());
  };
  EXPECT_THAT(with("two", "id2label", Json{{"0", "bad"}, {"1", "good"}}),
              HasSubstr("the model has 2 labels, and a reward is one number"));
  EXPECT_THAT(with("other", "vocab_size", 300), HasSubstr("has 300 tokens, and the one that is trained"));
  EXPECT_THAT(with("no", "architectures", Json::array({"LlamaForCausalLM"})), HasSubstr("scores no texts"));
}

}  // namespace
}  // namespace nought::reward_model_test
