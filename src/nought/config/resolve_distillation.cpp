// The part of the section alignment that a run reads which learns from a teacher.
#include <cmath>

#include "nought/config/resolve_steps.h"

namespace nought {

void take_distillation(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  Distillation& distillation = plan.distillation.emplace();
  const auto share = [&](const char* key, Setting<double> setting, double otherwise) {
    auto value = r.section_value(std::string("alignment.") + key, setting);
    if (!value.given) value.value = otherwise, value.reason = "TRL's default for gkd";
    require<ConfigError>(0 <= value.value && value.value <= 1, "{}: expected a number from 0 to 1, got {}", value.place,
                         value.value);
    return r.note(key, value);
  };
  require<ConfigError>(config.loss_type.is_null(), "{}: gkd has one loss: remove it",
                       r.origins.place("alignment.loss_type"));
  distillation.beta = share("beta", config.beta, 0.5);
  distillation.own_share = share("lmbda", config.lmbda, 0.5);
  auto temperature = r.section_value("alignment.temperature", config.temperature);
  if (!temperature.given) temperature.value = 0.9, temperature.reason = "TRL's default for gkd";
  require<ConfigError>(std::isfinite(temperature.value) && temperature.value > 0, "{}: expected a number > 0, got {}",
                       temperature.place, temperature.value);
  plan.policy_loss.temperature = r.note("temperature", temperature);
  const auto most = r.section_value("alignment.max_new_tokens", config.max_new_tokens);
  require<ConfigError>(most.value > 0, "{}: expected a number > 0, got {}", most.place, most.value);
  plan.policy_loss.max_completion_length = r.note("max_new_tokens", most);
  if (config.teacher_model.given)
    plan.teacher_model = r.note("teacher_model", r.section_value("alignment.teacher_model", config.teacher_model));
}

void refuse_keys_of_distillation(const Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  refuse_unless(r, "teacher_model", config.teacher_model.given, {AlignmentMethod::gkd});
  refuse_unless(r, "lmbda", config.lmbda.given, {AlignmentMethod::gkd});
  refuse_unless(r, "max_new_tokens", config.max_new_tokens.given, {AlignmentMethod::gkd});
}

void check_distillation(const Resolver& r) {
  const AlignmentPlan& alignment = r.plan.alignment;
  const Layout& layout = r.plan.layout;
  if (!alignment.distillation) return;
  const std::string method = r.origins.place("alignment.method") + " = gkd";
  require<ConfigError>(layout.tensor_ranks == 1,
                       "{}: both models say something of every token of the vocabulary, which tp_size would cut: set "
                       "it to 1",
                       method);
  require<ConfigError>(layout.context_ranks == 1,
                       "{}: what a teacher says of whole answers is not cut by cp_size or sp_size: set it to 1",
                       method);
  if (alignment.writes_answers() && !alignment.teacher_model.empty()) require_room_for_prompts(r);
}

}  // namespace nought
