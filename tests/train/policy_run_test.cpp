// Runs that learn from rewards of their own answers, on every layout.
#include "nought/train/policy_run.h"

#include <numeric>

#include "support/in_folder.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/io/files.h"
#include "nought/io/safetensors.h"
#include "nought/train/probe_policy.h"
#include "nought/train/reference_model.h"
#include "nought/train/validate_run.h"

namespace nought::policy_run_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::message_of;
using test::TempFolder;
using test::ToldRun;
using testing::HasSubstr;

class PolicyRuns : public test::InFolder {
 protected:
  PolicyRuns() {
    std::string text;
    for (int i = 0; i < 16; ++i)
      text += fmt::format("{{\"prompt\": \"{}\", \"answer\": \"{}\"}}\n",
                          std::string(1 + static_cast<size_t>(i % 3), static_cast<char>('a' + i % 5)), i);
    plan.data.sources = {{{folder.write("prompts.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::prompts;
    plan.layout.seq_length = 16, plan.layout.micro_batch = 4, plan.layout.accumulation = 4;
    // A quarter of all tokens ends an answer: ranks that write different ones make different numbers of passes.
    Json ends = Json::array();
    for (int id = 0; id < 64; ++id) ends.push_back(id);
    plan.model_config["eos_token_id"] = ends;
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::grpo, alignment.generations = 4;
    alignment.policy_loss.max_completion_length = 6;
    RewardConfig letters;
    letters.type = RewardType::regex;
    letters.pattern.value = "[a-z]", letters.pattern.given = true;
    alignment.rewards = {letters}, alignment.reward_weights = {1};
  }
  /// The plan at another rate, which falls from `peak_lr`.
  RunPlan with_other_steps(int64_t steps, double peak_lr) const {
    RunPlan other = plan;
    const RunPlan those = test::plan_on_lines(folder, steps, peak_lr);
    other.max_steps = those.max_steps, other.schedule = those.schedule;
    return other;
  }
  ToldRun run_on(int ranks, const std::function<void(Layout&)>& change) {
    TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    return test::run_plan(other, {.ranks = ranks});
  }
  static std::vector<double> rewards(const ToldRun& told) {
    std::vector<double> values;
    for (const StepReport& step : told.steps) values.push_back(step.of_answers.at(0).second);
    return values;
  }
  static std::vector<double> numbers(const ToldRun& told, const std::string& name) {
    std::vector<double> values;
    for (const StepReport& step : told.steps)
      for (const auto& [key, value] : step.of_answers)
        if (key == name) values.push_back(value);
    return values;
  }
  /// The loss that probe computes of the 16 answers from `first` on, with the weights and answers of a checkpoint.
  double probe_of(const std::filesystem::path& checkpoint, size_t first) const {
    const test::TrainingCase of{
        .model = model_config_of(plan), .mesh = {}, .load = [&](ShardedModel& model, Decoder& decoder) {
          model.load(Checkpoint(checkpoint, decoder));
        }};
    return of.on_rank(0, [&](test::TrainingRank& rank) {
      const SafetensorsFile file(checkpoint / kAnswersFile);
      const auto read = [&]<class T>(const char* name, T) {
        return file.load(name, *rank.context.memory).to_vector<T>();
      };
      const auto lengths = read("lengths", int64_t{}), begins = read("begins", int64_t{});
      const auto ids = read("ids", int32_t{});
      const auto written = read("written", float{});
      const auto scores = read("scores", double{});
      PolicyInput input;
      input.weights = {1};
      size_t at = 0;
      for (size_t i = 0; i < lengths.size(); at += static_cast<size_t>(lengths[i++])) {
        if (i < first || i >= first + 16) continue;
        const auto begin = static_cast<std::ptrdiff_t>(at), end = begin + lengths[i];
        input.rows.ids.emplace_back(ids.begin() + begin, ids.begin() + end);
        input.rows.begins.push_back(begins[i]);
        input.written.emplace_back(written.begin() + begin, written.begin() + end);
        input.rewards.push_back(scores[i]);
      }
      const ProbeOutput output = probe_policy(rank.model, rank.decoder, input, plan.alignment, false, {});
      return double{output.back().second.data<float>()[0]};  // "loss"
    });
  }
  void expect_same(const ToldRun& one, int ranks, const std::function<void(Layout&)>& change) {
    const ToldRun other = run_on(ranks, change);
    EXPECT_EQ(rewards(other), rewards(one));
    for (size_t i = 0; i < one.losses().size(); ++i) EXPECT_NEAR(other.losses()[i], one.losses()[i], 1e-5);
  }

  RunPlan plan = test::plan_on_lines(folder, 6);
};

TEST_F(PolicyRuns, write_the_same_answers_on_every_layout) {
  plan.save_steps = 3;
  const ToldRun told = test::run_plan(plan);
  test::expect_resumes(plan, told, 3, 1);
  for (const int stage : {0, 2, 3})
    expect_same(told, 2, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect_same(told, 2, [](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same(told, 2, [](Layout& layout) { layout.context_ranks = 2; });
  expect_same(told, 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
}

TEST_F(PolicyRuns, hold_to_their_reference) {
  plan.alignment.policy_loss.beta = 0.5;
  plan.max_steps = 4, plan.save_steps = 2;
  const ToldRun told = test::run_plan(plan);
  const std::vector<double> apart = numbers(told, "kl");
  ASSERT_EQ(apart.size(), 4U);
  EXPECT_EQ(apart[0], 0);  // to the bit
  EXPECT_FALSE(reference_sharding(plan.layout).training);
  EXPECT_GT(apart[3], 0);
  test::expect_resumes(plan, told, 2, 1);
  const auto expect = [&](const std::function<void(Layout&)>& change) {
    const ToldRun other = run_on(2, change);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(other.losses()[i], told.losses()[i], 1e-5);
      EXPECT_NEAR(numbers(other, "kl")[i], apart[i], 1e-5);
    }
  };
  for (const int stage : {1, 3}) expect([&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect([](Layout& layout) { layout.tensor_ranks = 2; });
  expect([](Layout& layout) { layout.context_ranks = 2; });
  expect([](Layout& layout) { layout.pipeline.ranks = 2; });
}

TEST_F(PolicyRuns, of_rloo_are_rewarded_less_where_they_leave_their_reference) {
  plan.alignment.method = AlignmentMethod::rloo, plan.alignment.leave_one_out = LeaveOneOutOptions{.beta = 0.5};
  PolicyLossOptions& loss = plan.alignment.policy_loss;
  loss.type = PolicyLossType::grpo, loss.level = ImportanceLevel::sequence, loss.sums_ratios = true;
  plan.alignment.iterations = 2;
  plan = with_other_steps(4, 3e-2);
  plan.save_steps = 3;
  const ToldRun told = test::run_plan(plan);
  const std::vector<double> apart = numbers(told, "kl");
  EXPECT_EQ(apart[0], 0);  // to the bit
  EXPECT_GT(apart[2], 0);
  EXPECT_EQ(rewards(told)[1], rewards(told)[0]);
  EXPECT_GT(numbers(told, "clip_ratio/region_mean")[1], 0);
  const double high = numbers(told, "clip_ratio/high_max")[1];
  EXPECT_EQ(high, numbers(told, "clip_ratio/high_mean")[1] > 0 ? 1 : 0);  // a ratio for each answer
  test::expect_resumes(plan, told, 3, 1);
  expect_same(told, 2, [](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
  if (!test::runs_everything()) return;
  for (const int stage : {0, 1, 2})
    expect_same(told, 2, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect_same(told, 2, [](Layout& layout) { layout.tensor_ranks = 2; });
  expect_same(told, 2, [](Layout& layout) { layout.context_ranks = 2; });
  expect_same(told, 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
}

TEST_F(PolicyRuns, learn_where_they_are_least_sure) {
  plan.model_config["initializer_range"] = 0.2;  // so that entropies are further apart than rounding is
  plan = with_other_steps(2, 1e-3);
  const ToldRun all = test::run_plan(plan);
  plan.alignment.top_entropy = 0.3;
  plan.output_dir = (folder / "some").string();
  const ToldRun told = test::run_plan(plan);
  EXPECT_GT(numbers(told, "entropy")[0], 0);
  EXPECT_EQ(numbers(told, "entropy")[0], numbers(all, "entropy")[0]);
  EXPECT_NE(told.losses()[0], all.losses()[0]);
  expect_same(told, 2, [](Layout& layout) { layout.tensor_ranks = 2; });
  if (!test::runs_everything()) return;
  for (const int stage : {0, 1, 2, 3})
    expect_same(told, 2, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect_same(told, 2, [](Layout& layout) { layout.context_ranks = 2; });
  expect_same(told, 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
}

TEST_F(PolicyRuns, learn_nothing_from_truncated_answers_if_they_are_told_so) {
  plan = with_other_steps(2, 3e-2);
  const ToldRun all = test::run_plan(plan);
  plan.alignment.masks_truncated = true;
  plan.output_dir = (folder / "some").string();
  const ToldRun told = test::run_plan(plan);
  EXPECT_EQ(rewards(told)[0], rewards(all)[0]);
  EXPECT_NE(told.losses()[0], all.losses()[0]);
  expect_same(told, 2, [](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
}

TEST_F(PolicyRuns, validate_with_prompts_that_are_held_out) {
  plan.data.validation_fraction = 0.25, plan.layout.evaluation_rows = 3;
  plan.layout.micro_batch = 3, plan.alignment.generations_to_validate = 5;
  plan.alignment.policy_loss.beta = 0.1, plan.alignment.policy_loss.type = PolicyLossType::grpo;
  plan = with_other_steps(2, 3e-2);
  plan.eval_strategy = EvalStrategy::steps, plan.eval_steps = 1, plan.save_steps = 1;
  plan.best = BestModelPlan{.metric = EvalMetric::reward, .greater_is_better = true};
  const auto number = [](const Evaluation& evaluation, const std::string& name) {
    for (const auto& [key, value] : evaluation.of_answers)
      if (key == name) return value;
    return -1.0;
  };
  const ToldRun told = test::run_plan(plan);
  ASSERT_EQ(told.validations.size(), 2U);
  const Evaluation &first = told.validations[0].second, &second = told.validations[1].second;
  EXPECT_GE(number(first, "reward"), 0);
  const bool is_first = number(first, "reward") >= number(second, "reward");
  EXPECT_THAT(told.events, testing::Contains(is_first ? "best 1" : "best 2"));
  EXPECT_LE(number(first, "completions/max_length"), 6);
  EXPECT_GT(number(second, "kl"), 0);
  // Advantages of a group add up to nothing: what is left is the divergence.
  EXPECT_GT(second.loss, 0);
  EXPECT_GE(first.targets, 4 * 5);
  const ToldRun other = run_on(2, [](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
  for (const size_t at : {size_t{0}, size_t{1}}) {
    const Evaluation &one = told.validations[at].second, &two = other.validations.at(at).second;
    EXPECT_NEAR(two.loss, one.loss, 1e-5);
    EXPECT_EQ(two.targets, one.targets);
    for (size_t i = 0; i < one.of_answers.size(); ++i)
      EXPECT_NEAR(two.of_answers.at(i).second, one.of_answers[i].second, 1e-5) << one.of_answers[i].first;
  }
}

TEST_F(PolicyRuns, of_an_adapter_hold_to_what_it_began_with) {
  TempFolder base;
  plan.output_dir = (base / "model").string();
  plan.max_steps = 1;
  test::run_plan(plan);
  plan.model_config = {}, plan.model_dir = plan.output_dir, plan.output_dir = (base / "out").string();
  plan.adapter = AdapterConfig{.r = 3, .alpha = 6, .targets = {.pattern = "all-linear"}};
  plan.adapter_place = "RUN.json: adapter";
  plan.alignment.policy_loss.beta = 0.5;
  plan = with_other_steps(3, 5e-2);
  const ToldRun off = test::run_plan(plan);
  EXPECT_EQ(numbers(off, "kl")[0], 0);
  EXPECT_GT(numbers(off, "kl")[2], 0);
}

TEST_F(PolicyRuns, learn_from_the_same_answers_in_several_steps) {
  // Answers of two steps, each learned from twice: steps 0 and 2 have one half, 1 and 3 the other.
  plan = with_other_steps(6, 3e-2);
  plan.alignment.iterations = 2, plan.alignment.steps_per_generation = 2 * plan.layout.accumulation;
  plan.save_steps = 1;
  const ToldRun told = test::run_plan(plan);
  const std::vector<double> values = rewards(told);
  EXPECT_EQ(values[2], values[0]);
  EXPECT_EQ(values[3], values[1]);
  EXPECT_NE(values[1], values[0]);
  EXPECT_EQ(numbers(told, "clip_ratio/region_mean")[0], 0);
  const std::filesystem::path out = plan.output_dir;
  const std::string lines = read_text(out / kCompletionsFile);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2 * 2 * 16);
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(out, 4) / kAnswersFile));
  EXPECT_NEAR(probe_of(checkpoint_path(out, 2), 0), told.losses()[2], 2e-6);
  EXPECT_NEAR(probe_of(checkpoint_path(out, 3), 16), told.losses()[3], 2e-6);
  test::expect_resumes(plan, told, 3, 1);
  plan.alignment.steps_per_generation = 4;  // of two ranks
  expect_same(told, 2, [](Layout& layout) { layout.accumulation = 2, layout.zero_stage = 3; });
}

TEST_F(PolicyRuns, are_rewarded_more_after_some_steps) {
  plan = with_other_steps(60, 3e-3);
  plan.layout.micro_batch = 32, plan.alignment.generations = 16;
  folder.write("out/completions.jsonl", "{}\n");
  const ToldRun told = test::run_plan(plan);
  const std::vector<double> values = rewards(told);
  const double before = std::accumulate(values.begin(), values.begin() + 5, 0.0) / 5;
  const double after = std::accumulate(values.end() - 5, values.end(), 0.0) / 5;
  EXPECT_GT(after, before + 0.2);
  EXPECT_EQ(told.steps[0].of_answers.at(0).first, "reward");
  const std::string lines = read_text(std::filesystem::path(plan.output_dir) / kCompletionsFile);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 60 * 128);
  const Json first = Json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first.at("step"), 1);
  EXPECT_EQ(first.at("rewards").at("regex"), first.at("reward"));
}

TEST_F(PolicyRuns, are_refused_where_they_can_not_learn) {
  RunPlan other = plan;
  other.alignment.rewards = {}, other.alignment.reward_weights = {};
  const auto why = [&] { return message_of<ConfigError>([&] { validate_run(other, StartMode::fresh, kDryRun); }); };
  EXPECT_THAT(why(), HasSubstr("nothing judges the answers: add alignment.reward_funcs"));
  other = plan, other.layout.seq_length = 8;
  other.alignment.policy_loss.max_completion_length = 7;
  EXPECT_EQ(look_at_data(other, *tokenizer_of(other.data), 1 << 20).notes.back(),
            "10 of 16 prompts have more than 1 tokens (max_length less max_completion_length): they are left out");
  other = plan, other.alignment.rewards[0] = {}, other.alignment.rewards[0].column.value = "result";
  EXPECT_THAT(message_of<ConfigError>([&] { test::run_plan(other); }),
              HasSubstr("has no \"result\", which reward exact_match compares answers with"));
}

}  // namespace
}  // namespace nought::policy_run_test
