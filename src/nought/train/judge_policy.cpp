#include "nought/train/judge_policy.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "nought/base/math.h"
#include "nought/infer/rollout.h"

namespace nought {

namespace {

/// A rank writes no more answers of a validation together than of a step.
int64_t answers_at_once(const RunPlan& plan) {
  const Layout& layout = plan.layout;
  const int64_t of_step = layout.train_batch() * plan.alignment.steps_of_answers(layout.accumulation) /
                          (layout.writes_answers_together() ? 1 : layout.data_ranks());
  return std::clamp<int64_t>(of_step, 1, RolloutOptions().sequences);
}

/// The plan without what rewards of steps are less by.
RunPlan without_penalties(RunPlan plan) {
  if (plan.alignment.leave_one_out) plan.alignment.leave_one_out->beta = 0;
  return plan;
}

}  // namespace

PolicyAnswers::Options validation_options(const RunPlan& plan, const AnswerData& held_out, const BatchLayout& layout) {
  const AlignmentPlan& alignment = plan.alignment;
  const int64_t all = held_out.num_pairs() * alignment.generations_to_validate;
  BatchLayout rows = layout;
  rows.micro_batch = plan.layout.evaluation_rows;
  rows.accumulation = ceil_div(all, rows.micro_batch * rows.world_size);
  int64_t longest = 0;
  for (int64_t i = 0; i < held_out.num_pairs(); ++i) longest = std::max(longest, held_out.tokens_of_pair(i));
  return {.layout = rows,
          .share = all,
          .generations = alignment.generations_to_validate,
          .at_once = answers_at_once(plan),
          .room = rows.micro_batch * (longest + alignment.policy_loss.max_completion_length),
          .asks_policy = alignment.penalises_divergence() || alignment.ppo};
}

Evaluation judge_policy(const RunPlan& given, const RunData& data, const BatchLayout& layout, ShardedModel& model,
                        Decoder& decoder, Engine& engine, const Tokenizer& tokenizer) {
  const RunPlan plan = without_penalties(given);
  require<ConfigError>(!plan.alignment.rewards.empty(),
                       "alignment.method = {}: nothing judges the answers: the RUN.json needs alignment.reward_funcs",
                       enum_name(plan.alignment.method));
  const auto begin = std::chrono::steady_clock::now();
  const AnswerJudges judges(plan, model.mesh(), model.context());
  judges.require_columns(*data.validation_pairs);
  const std::vector<int32_t> stop_ids = ends_of_answers(plan, data, decoder.config(), tokenizer);
  PolicyAnswers::Options options = validation_options(plan, *data.validation_pairs, layout);
  options.asks_policy = false;
  PolicyAnswers answers({plan, model, decoder, engine, nullptr, nullptr, judges, tokenizer, stop_ids},
                        data.validation_pairs, options);
  std::vector<int64_t> prompts(static_cast<size_t>(data.validation_pairs->num_pairs()));
  std::iota(prompts.begin(), prompts.end(), 0);
  answers.write(prompts, "validation");
  Evaluation result{.targets = answers.written_tokens(0), .of_answers = answers.metrics(0)};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace nought
