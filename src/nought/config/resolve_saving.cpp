// When a run saves, where it resumes, which checkpoint is the best, and what text it continues on the way.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_saving() {
  const TrainingConfig& t = config_.training;
  const auto save = training("save_steps", t.save_steps);
  require_at_least<int64_t>(save, 0);
  plan_.save_steps = note("save_steps", save);
  const auto limit = training("save_total_limit", t.save_total_limit);
  require_at_least<int64_t>(limit, 0);
  plan_.save_total_limit = note("save_total_limit", limit);
  resolve_resuming();
  resolve_best_model();
  resolve_sample();
}

void Resolver::resolve_resuming() {
  if (!config_.training.resumes()) return;
  const std::string key = "training.resume_from_checkpoint";
  const Json& from = config_.training.resume_from_checkpoint;
  const bool step = from.is_number_integer() && from.get<int64_t>() >= 0;
  const bool path = from.is_string() && !from.get_ref<const std::string&>().empty();
  require<ConfigError>(step || path || from == true,
                       "{}: expected true, false, a step or the path of a checkpoint, found {}", origins_.place(key),
                       describe_json(from));
  if (step) plan_.resume_from = fmt::format("{}", from.get<int64_t>());
  if (path) plan_.resume_from = from.get<std::string>();
  const std::string shown = plan_.resume_from.empty() ? "the last of output_dir" : plan_.resume_from;
  note("resume_from_checkpoint", section_value(key, shown, true));
}

void Resolver::resolve_best_model() {
  const TrainingConfig& t = config_.training;
  const auto load = training("load_best_model_at_end", t.load_best_model_at_end);
  const auto idle = [&](const char* key, bool given) {
    if (given)
      warn(fmt::format("{} has no effect without training.load_best_model_at_end",
                       origins_.place(fmt::format("training.{}", key))));
  };
  if (!load.value) {
    idle("metric_for_best_model", t.metric_for_best_model.given);
    idle("greater_is_better", t.greater_is_better.given);
    return;
  }
  require<ConfigError>(plan_.data.validates(),
                       "{} needs data to validate with: give data.validation_fraction or data.validation_files",
                       load.place);
  note("load_best_model_at_end", load);
  const auto metric = training("metric_for_best_model", t.metric_for_best_model);
  plan_.resolved.push_back({"metric_for_best_model", std::string(enum_name(metric.value)), metric.reason});
  plan_.best = BestModelPlan{.metric = metric.value, .greater_is_better = t.greater_is_better.value};
  if (t.greater_is_better.value)
    warn(fmt::format("{} = true keeps the worst model: the smaller {} is, the better",
                     origins_.place("training.greater_is_better"), enum_name(metric.value)));
}

void Resolver::resolve_sample() {
  const TrainingConfig& t = config_.training;
  if (!t.sample_prompt.given) return;
  const auto prompt = training("sample_prompt", t.sample_prompt);
  require<ConfigError>(!prompt.value.empty(), "{}: expected a text to continue, found \"\"", prompt.place);
  const auto count = [&](const char* key, const Setting<int64_t>& setting) {
    const auto value = training(key, setting);
    require_at_least<int64_t>(value, 1);
    return note(key, value);
  };
  plan_.resolved.push_back({"sample_prompt", Json(prompt.value).dump(), prompt.reason});
  plan_.sample = SamplePlan{.prompt = prompt.value,
                            .steps = count("sample_steps", t.sample_steps),
                            .max_new_tokens = count("sample_max_new_tokens", t.sample_max_new_tokens)};
  constexpr int64_t kMost = int64_t{1} << 24;  // as --max-new-tokens has it
  require<ConfigError>(plan_.sample->max_new_tokens <= kMost, "{}: expected at most {}, got {}",
                       origins_.place("training.sample_max_new_tokens"), kMost, plan_.sample->max_new_tokens);
}

}  // namespace nought
