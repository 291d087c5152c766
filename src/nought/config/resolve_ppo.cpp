// The part of the section alignment that proximal policy optimization reads.
#include <cmath>
#include <limits>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// Values of keys that only ppo reads.
struct PpoKeys {
  Resolver& r;

  template <class T>
  T take(const char* key, const Setting<T>& setting) const {
    return r.note(key, r.section_value(std::string("alignment.") + key, setting));
  }
  double number(const char* key, const Setting<double>& setting, double least, double most = kAny) const {
    const double value = setting.value;
    require<ConfigError>(std::isfinite(value) && least <= value && value <= most, "{}: expected a number{}, got {}",
                         r.origins.place(std::string("alignment.") + key),
                         most == kAny ? fmt::format(" >= {}", least) : fmt::format(" from {} to {}", least, most),
                         value);
    return take(key, setting);
  }
  int64_t count(const char* key, const Setting<int64_t>& setting) const {
    require<ConfigError>(setting.value > 0, "{}: expected a number > 0, got {}",
                         r.origins.place(std::string("alignment.") + key), setting.value);
    return take(key, setting);
  }

  static constexpr double kAny = std::numeric_limits<double>::infinity();
};

void take_ends(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  const PpoKeys keys{r};
  require<ConfigError>(!config.stop_token.given || config.stop_token.value == "eos",
                       "{} = \"{}\": expected \"eos\"; stop_token_id is the id of another token",
                       r.origins.place("alignment.stop_token"), config.stop_token.value);
  require<ConfigError>(!config.stop_token.given || !config.stop_token_id.given,
                       "{}: stop_token = \"eos\" says it: remove one", r.origins.place("alignment.stop_token_id"));
  if (config.stop_token.given) keys.take("stop_token", config.stop_token);
  if (!config.stop_token_id.given) return;
  const int64_t id = config.stop_token_id.value;
  require<ConfigError>(0 <= id && id <= std::numeric_limits<int32_t>::max(), "{}: expected the id of a token, got {}",
                       r.origins.place("alignment.stop_token_id"), id);
  r.plan.alignment.ppo->stop_token_id = static_cast<int32_t>(keys.take("stop_token_id", config.stop_token_id));
}

}  // namespace

void take_kl(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  require<ConfigError>(!config.beta.given, "{}: ppo calls it kl_coef", r.origins.place("alignment.beta"));
  PpoOptions& options = r.plan.alignment.ppo.emplace().options;
  options.kl_coef = PpoKeys{r}.number("kl_coef", config.kl_coef, 0);
  options.kl_estimator = PpoKeys{r}.take("kl_estimator", config.kl_estimator);
}

void take_ppo(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  PpoOptions& options = plan.ppo->options;
  const PpoKeys keys{r};
  require<ConfigError>(config.loss_type.is_null(), "{}: ppo has one loss: remove it",
                       r.origins.place("alignment.loss_type"));
  plan.policy_loss.max_completion_length = keys.count("response_length", config.response_length);
  auto temperature = r.section_value("alignment.temperature", config.temperature);
  if (!temperature.given) temperature.value = 0.7, temperature.reason = "TRL's default for ppo";
  require<ConfigError>(std::isfinite(temperature.value) && temperature.value > 0, "{}: expected a number > 0, got {}",
                       temperature.place, temperature.value);
  plan.policy_loss.temperature = r.note("temperature", temperature);
  plan.generations = plan.generations_to_validate = 1;
  plan.iterations = keys.count("num_ppo_epochs", config.num_ppo_epochs);
  plan.ppo->mini_batches = keys.count("num_mini_batches", config.num_mini_batches);
  options.clip = keys.number("cliprange", config.cliprange, 0);
  options.value_clip = keys.number("cliprange_value", config.cliprange_value, 0);
  options.value_coef = keys.number("vf_coef", config.vf_coef, 0);
  options.gamma = keys.number("gamma", config.gamma, 0, 1);
  options.lam = keys.number("lam", config.lam, 0, 1);
  if (config.whiten_rewards.given) options.whitens_rewards = keys.take("whiten_rewards", config.whiten_rewards);
  if (config.missing_eos_penalty.given)
    options.missing_eos_penalty = keys.number("missing_eos_penalty", config.missing_eos_penalty, 0);
  take_ends(r);
}

void take_value_model(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  PpoPlan& ppo = *plan.ppo;
  ppo.value_place = "alignment.value_model";
  if (config.value_model.given) {
    ppo.value_model = r.note("value_model", r.section_value("alignment.value_model", config.value_model));
    return;
  }
  for (const RewardConfig& reward : plan.rewards)
    if (reward.type == RewardType::reward_model && ppo.value_model.empty()) ppo.value_model = reward.path.value;
  r.plan.resolved.push_back({"value_model", ppo.value_model.empty() ? "the model" : ppo.value_model,
                             ppo.value_model.empty() ? "no reward model, so with a new head" : "the reward model"});
}

void refuse_keys_of_ppo(const Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  const auto refuse = [&](const char* key, bool given) { refuse_unless(r, key, given, {AlignmentMethod::ppo}); };
  refuse("response_length", config.response_length.given);
  refuse("stop_token", config.stop_token.given);
  refuse("stop_token_id", config.stop_token_id.given);
  refuse("missing_eos_penalty", config.missing_eos_penalty.given);
  refuse("num_ppo_epochs", config.num_ppo_epochs.given);
  refuse("num_mini_batches", config.num_mini_batches.given);
  refuse("whiten_rewards", config.whiten_rewards.given);
  refuse("kl_coef", config.kl_coef.given);
  refuse("kl_estimator", config.kl_estimator.given);
  refuse("cliprange", config.cliprange.given);
  refuse("cliprange_value", config.cliprange_value.given);
  refuse("vf_coef", config.vf_coef.given);
  refuse("gamma", config.gamma.given);
  refuse("lam", config.lam.given);
  refuse("reward_model", config.reward_model.given);
  refuse("value_model", config.value_model.given);
}

void check_ppo(const Resolver& r) {
  const RunPlan& plan = r.plan;
  if (!plan.alignment.ppo) return;
  const std::string method = r.origins.place("alignment.method") + " = ppo";
  require<ConfigError>(!plan.layout.sharding.offload_optimizer.delay_after,
                       "{}: two models learn from the same answers, and updates that come a step later are of one: "
                       "remove training.delayed_update",
                       method);
}

}  // namespace nought
