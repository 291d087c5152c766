// The part of the section alignment that methods read which learn from rewards of a model's own answers.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"
#include "nought/rewards/reward.h"

namespace nought {

namespace {

/// What judges answers. Nothing does in `nought probe`, whose input has their rewards.
void take_judges(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  plan.rewards = config.reward_funcs.value, plan.reward_weights = config.reward_weights.value;
  if (!config.reward_weights.given) plan.reward_weights.assign(plan.rewards.size(), 1);
  require<ConfigError>(plan.reward_weights.size() == plan.rewards.size(),
                       "{}: {} weights for {} reward_funcs: give one for each",
                       r.origins.place("alignment.reward_weights"), plan.reward_weights.size(), plan.rewards.size());
  if (config.reward_model.given) {
    RewardConfig model;
    model.type = RewardType::reward_model;
    model.path.value = r.section_value("alignment.reward_model", config.reward_model).value, model.path.given = true;
    plan.rewards.push_back(model), plan.reward_weights.push_back(1);
  }
  for (const double weight : plan.reward_weights)
    require<ConfigError>(std::isfinite(weight), "{}: expected finite numbers",
                         r.origins.place("alignment.reward_weights"));
  std::vector<std::string> names;
  for (size_t i = 0; i < plan.rewards.size(); ++i) {
    const std::string place = r.origins.place(fmt::format("alignment.reward_funcs[{}]", i));
    try {
      make_reward(plan.rewards[i], plan.policy_loss.max_completion_length);
    } catch (const ConfigError& error) {
      fail<ConfigError>("{}: {}", place, error.what());
    }
    const std::string name = reward_name(plan.rewards[i]);
    require<ConfigError>(std::find(names.begin(), names.end(), name) == names.end(),
                         "{}: another reward is called {} as well: give each a \"name\"", place, name);
    names.push_back(name);
  }
  if (!names.empty())
    r.plan.resolved.push_back({"reward_funcs", fmt::format("{}", fmt::join(names, ", ")), "alignment.reward_funcs"});
}

/// How answers are drawn. Rules and defaults are those of TRL.
void take_sampling(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AnswerSampling& sampling = r.plan.alignment.sampling;
  const auto take = [&](const char* key, const auto& setting, bool valid, const char* expected) {
    const auto value = r.section_value(std::string("alignment.") + key, setting);
    require<ConfigError>(valid, "{}: expected {}, got {}", value.place, expected, value.value);
    return value.given ? r.note(key, value) : value.value;
  };
  const auto is_share = [](double value) { return 0 <= value && value <= 1; };
  const double top_p = config.top_p.value, penalty = config.repetition_penalty.value;
  sampling.top_k = take("top_k", config.top_k, config.top_k.value >= 0, "a number >= 0");
  sampling.top_p = take("top_p", config.top_p, is_share(top_p) && top_p > 0, "a number > 0 and <= 1");
  sampling.min_p = take("min_p", config.min_p, is_share(config.min_p.value), "a number from 0 to 1");
  sampling.repetition_penalty =
      take("repetition_penalty", config.repetition_penalty, std::isfinite(penalty) && penalty > 0, "a number > 0");
}

/// The value of a key that only grpo reads, or both methods.
struct PolicyKeys {
  Resolver& r;

  template <class T>
  T take(const char* key, const Setting<T>& setting) const {
    return r.note(key, r.section_value(std::string("alignment.") + key, setting));
  }
  double positive(const char* key, const Setting<double>& setting) const {
    require<ConfigError>(std::isfinite(setting.value) && setting.value > 0, "{}: expected a number > 0, got {}",
                         r.origins.place(std::string("alignment.") + key), setting.value);
    return take(key, setting);
  }
};

/// How often answers are written, how many, and how long they are.
void take_answers(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  const PolicyKeys keys{r};
  auto generations = r.section_value("alignment.num_generations", config.num_generations);
  if (plan.method == AlignmentMethod::rloo && !generations.given)
    generations.value = 2, generations.reason = "TRL's default for rloo";
  plan.generations = plan.generations_to_validate = r.note("num_generations", generations);
  if (config.num_generations_eval.given)
    plan.generations_to_validate = keys.take("num_generations_eval", config.num_generations_eval);
  require<ConfigError>(plan.generations_to_validate > 0, "{}: expected a number > 0, got {}",
                       r.origins.place("alignment.num_generations_eval"), plan.generations_to_validate);
  plan.policy_loss.max_completion_length = keys.take("max_completion_length", config.max_completion_length);
  plan.iterations = config.num_iterations.value, plan.steps_per_generation = config.steps_per_generation.value;
  if (config.mask_truncated_completions.given)
    plan.masks_truncated = keys.take("mask_truncated_completions", config.mask_truncated_completions);
  if (config.num_iterations.given) keys.take("num_iterations", config.num_iterations);
  require<ConfigError>(plan.iterations > 0, "{}: expected a number > 0, got {}",
                       r.origins.place("alignment.num_iterations"), plan.iterations);
  require<ConfigError>(plan.generations > 1, "{}: expected 2 answers or more, got {}",
                       r.origins.place("alignment.num_generations"), plan.generations);
  require<ConfigError>(plan.policy_loss.max_completion_length > 0, "{}: expected a number > 0, got {}",
                       r.origins.place("alignment.max_completion_length"), plan.policy_loss.max_completion_length);
}

void take_grpo(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  PolicyLossOptions& loss = r.plan.alignment.policy_loss;
  if (!config.loss_type.is_null()) {
    const Json& given = config.loss_type;
    const auto type =
        given.is_string() ? enum_named<PolicyLossType>(given.get_ref<const std::string&>()) : std::nullopt;
    require<ConfigError>(type.has_value(), "{}: {} is none of {}", r.origins.place("alignment.loss_type"), given.dump(),
                         fmt::join(enum_names<PolicyLossType>(), ", "));
    loss.type = *type;
  }
  require<ConfigError>(loss.type != PolicyLossType::cispo || config.epsilon_high.given,
                       "{} = cispo: set epsilon_high, the ratio that weights are clipped at, such as 5",
                       r.origins.place("alignment.loss_type"));
  if (config.delta.given) loss.delta = PolicyKeys{r}.positive("delta", config.delta);
  loss.corrects_kl = config.use_bias_correction_kl.value, loss.level = config.importance_sampling_level.value;
  r.plan.alignment.reward_scale = config.scale_rewards.value;
  const double share = config.top_entropy_quantile.value;
  require<ConfigError>(0 < share && share <= 1, "{}: expected a number > 0 and <= 1, got {}",
                       r.origins.place("alignment.top_entropy_quantile"), share);
  if (config.top_entropy_quantile.given)
    r.plan.alignment.top_entropy = PolicyKeys{r}.take("top_entropy_quantile", config.top_entropy_quantile);
}

/// The loss is that of whole answers, and the divergence from the reference is a part of their rewards.
void take_rloo(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  require<ConfigError>(config.loss_type.is_null(), "{}: rloo has one loss: remove it",
                       r.origins.place("alignment.loss_type"));
  plan.policy_loss.type = PolicyLossType::grpo, plan.policy_loss.level = ImportanceLevel::sequence;
  plan.policy_loss.sums_ratios = true;
  if (config.normalize_advantages.given)
    plan.leave_one_out->normalizes = PolicyKeys{r}.take("normalize_advantages", config.normalize_advantages);
  if (!config.reward_clip_range.given) return;
  const std::vector<double>& range = config.reward_clip_range.value;
  require<ConfigError>(range.size() == 2 && range[0] <= range[1], "{}: expected [least, most], got [{}]",
                       r.origins.place("alignment.reward_clip_range"), fmt::join(range, ", "));
  plan.leave_one_out->clip_range = {range[0], range[1]};
  r.plan.resolved.push_back(
      {"reward_clip_range", fmt::format("[{}]", fmt::join(range, ", ")), "alignment.reward_clip_range"});
}

}  // namespace

void refuse_keys_of_rewards(const Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  const auto refuse = [&](const char* key, bool given) {
    refuse_unless(r, key, given, {AlignmentMethod::grpo, AlignmentMethod::rloo});
  };
  const auto of_all = [&](const char* key, bool given) {
    refuse_unless(r, key, given, {AlignmentMethod::grpo, AlignmentMethod::rloo, AlignmentMethod::ppo});
  };
  const auto of_one = [&](const char* key, bool given, AlignmentMethod method) {
    refuse_unless(r, key, given, {method});
  };
  refuse("epsilon", config.epsilon.given);
  refuse("epsilon_high", config.epsilon_high.given);
  refuse_unless(r, "temperature", config.temperature.given,
                {AlignmentMethod::grpo, AlignmentMethod::rloo, AlignmentMethod::ppo, AlignmentMethod::gkd});
  of_all("top_k", config.top_k.given);
  of_all("top_p", config.top_p.given);
  of_all("min_p", config.min_p.given);
  of_all("repetition_penalty", config.repetition_penalty.given);
  refuse("num_generations", config.num_generations.given);
  refuse("num_generations_eval", config.num_generations_eval.given);
  refuse("num_iterations", config.num_iterations.given);
  refuse("steps_per_generation", config.steps_per_generation.given);
  refuse("max_completion_length", config.max_completion_length.given);
  refuse("mask_truncated_completions", config.mask_truncated_completions.given);
  of_all("reward_funcs", config.reward_funcs.given);
  of_all("reward_weights", config.reward_weights.given);
  of_one("delta", config.delta.given, AlignmentMethod::grpo);
  of_one("use_bias_correction_kl", config.use_bias_correction_kl.given, AlignmentMethod::grpo);
  of_one("importance_sampling_level", config.importance_sampling_level.given, AlignmentMethod::grpo);
  of_one("top_entropy_quantile", config.top_entropy_quantile.given, AlignmentMethod::grpo);
  of_one("scale_rewards", config.scale_rewards.given, AlignmentMethod::grpo);
  of_one("normalize_advantages", config.normalize_advantages.given, AlignmentMethod::rloo);
  of_one("reward_clip_range", config.reward_clip_range.given, AlignmentMethod::rloo);
}

void take_policy_beta(Resolver& r) {
  AlignmentPlan& plan = r.plan.alignment;
  if (plan.method == AlignmentMethod::ppo) return take_kl(r);
  auto beta = r.section_value("alignment.beta", r.config.alignment.beta);
  const bool rloo = plan.method == AlignmentMethod::rloo;
  if (rloo && !beta.given) beta.value = 0.05, beta.reason = "TRL's default for rloo";
  require_finite_at_least_zero(beta);
  if (rloo) plan.leave_one_out.emplace();
  (rloo ? plan.leave_one_out->beta : plan.policy_loss.beta) = rloo || beta.given ? r.note("beta", beta) : 0;
}

void take_rewards(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  PolicyLossOptions& loss = r.plan.alignment.policy_loss;
  const PolicyKeys keys{r};
  if (r.plan.alignment.method == AlignmentMethod::ppo) {
    take_ppo(r);
    take_sampling(r);
    take_judges(r);
    return take_value_model(r);
  }
  loss.epsilon = loss.epsilon_high = keys.positive("epsilon", config.epsilon);
  if (config.epsilon_high.given) loss.epsilon_high = keys.positive("epsilon_high", config.epsilon_high);
  loss.temperature = keys.positive("temperature", config.temperature);
  if (r.plan.alignment.method == AlignmentMethod::grpo)
    take_grpo(r);
  else
    take_rloo(r);
  take_answers(r);
  take_sampling(r);
  take_judges(r);
}

void check_rewards(const Resolver& r) {
  const AlignmentPlan& alignment = r.plan.alignment;
  if (!alignment.of_rewards() || alignment.rewards.empty()) return;
  const Layout& layout = r.plan.layout;
  const int64_t batch = layout.train_batch();
  require<ConfigError>(batch % alignment.generations == 0,
                       "{}: groups of {} answers do not divide the {} answers of a step (micro batch {} x accumulation "
                       "{} x {} ranks): change one of them",
                       r.origins.place("alignment.num_generations"), alignment.generations, batch, layout.micro_batch,
                       layout.accumulation, layout.data_ranks());
  require<ConfigError>(
      !r.config.alignment.steps_per_generation.given ||
          (alignment.steps_per_generation > 0 && alignment.steps_per_generation % layout.accumulation == 0),
      "{} = {}: answers are written for whole steps, which have {} micro-batches each: make it a multiple of that",
      r.origins.place("alignment.steps_per_generation"), alignment.steps_per_generation, layout.accumulation);
  require_room_for_prompts(r);
}

}  // namespace nought
