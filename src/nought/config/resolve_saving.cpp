// When a run saves, where it resumes, which checkpoint is the best, and what text it continues on the way.
#include <algorithm>

#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

void resolve_resuming(Resolver& r) {
  if (!r.config.training.resumes()) return;
  const std::string key = "training.resume_from_checkpoint";
  const Json& from = r.config.training.resume_from_checkpoint;
  const bool step = from.is_number_integer() && from.get<int64_t>() >= 0;
  const bool path = from.is_string() && !from.get_ref<const std::string&>().empty();
  require<ConfigError>(step || path || from == true,
                       "{}: expected true, false, a step or the path of a checkpoint, found {}", r.origins.place(key),
                       describe_json(from));
  if (step) r.plan.resume_from = fmt::format("{}", from.get<int64_t>());
  if (path) r.plan.resume_from = from.get<std::string>();
  const std::string shown = r.plan.resume_from.empty() ? "the last of output_dir" : r.plan.resume_from;
  r.note("resume_from_checkpoint", r.section_value(key, shown, true));
}

void resolve_best_model(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto load = r.training("load_best_model_at_end", t.load_best_model_at_end);
  const auto idle = [&](const char* key, bool given) {
    if (given)
      r.warn(fmt::format("{} has no effect without training.load_best_model_at_end",
                         r.origins.place(fmt::format("training.{}", key))));
  };
  if (!load.value) {
    idle("metric_for_best_model", t.metric_for_best_model.given);
    idle("greater_is_better", t.greater_is_better.given);
    return;
  }
  require<ConfigError>(r.plan.data.validates(),
                       "{} needs data to validate with: give data.validation_fraction or data.validation_files",
                       load.place);
  r.note("load_best_model_at_end", load);
  const auto metric = r.training("metric_for_best_model", t.metric_for_best_model);
  r.plan.resolved.push_back({"metric_for_best_model", std::string(enum_name(metric.value)), metric.reason});
  const bool of_rewards = metric.value == EvalMetric::reward;
  const AlignmentMethod method = r.config.alignment.method.value;
  require<ConfigError>(!of_rewards || method == AlignmentMethod::grpo || method == AlignmentMethod::rloo ||
                           method == AlignmentMethod::ppo,
                       "{} = reward: alignment.method = {} has no rewards of answers: grpo, rloo and ppo have",
                       metric.place, enum_name(method));
  const bool greater = t.greater_is_better.given ? t.greater_is_better.value : of_rewards;
  r.plan.best = BestModelPlan{.metric = metric.value, .greater_is_better = greater};
  if (greater != of_rewards)
    r.warn(fmt::format("{} = {} keeps the worst model: the {} {} is, the better",
                       r.origins.place("training.greater_is_better"), greater, of_rewards ? "greater" : "smaller",
                       enum_name(metric.value)));
}

void resolve_sample(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  if (!t.sample_prompt.given) return;
  const auto prompt = r.training("sample_prompt", t.sample_prompt);
  require<ConfigError>(!prompt.value.empty(), "{}: expected a text to continue, found \"\"", prompt.place);
  const auto count = [&](const char* key, const Setting<int64_t>& setting) {
    const auto value = r.training(key, setting);
    require_at_least<int64_t>(value, 1);
    return r.note(key, value);
  };
  r.plan.resolved.push_back({"sample_prompt", Json(prompt.value).dump(), prompt.reason});
  r.plan.sample = SamplePlan{.prompt = prompt.value,
                             .steps = count("sample_steps", t.sample_steps),
                             .max_new_tokens = count("sample_max_new_tokens", t.sample_max_new_tokens)};
  constexpr int64_t kMost = int64_t{1} << 24;  // as --max-new-tokens has it
  require<ConfigError>(r.plan.sample->max_new_tokens <= kMost, "{}: expected at most {}, got {}",
                       r.origins.place("training.sample_max_new_tokens"), kMost, r.plan.sample->max_new_tokens);
}

}  // namespace

void resolve_saving(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  auto save = r.training("save_steps", t.save_steps);
  require_at_least<int64_t>(save, 0);
  const auto strategy = r.training("save_strategy", t.save_strategy);
  if (strategy.given)
    r.plan.resolved.push_back({"save_strategy", std::string(enum_name(strategy.value)), strategy.reason});
  if (strategy.value != SaveStrategy::steps) {
    constexpr int64_t kOfTransformers = 500;  // which its to_dict() writes whatever the strategy is
    if (save.given && save.value != 0 && save.value != kOfTransformers)
      r.warn(fmt::format("{} = {} has no effect: {} is \"{}\"", save.place, save.value, strategy.place,
                         enum_name(strategy.value)));
    save = {0, true, save.place, strategy.reason};
  }
  r.plan.save_epochs = strategy.value == SaveStrategy::epoch;
  r.plan.save_steps = r.note("save_steps", save);
  const auto limit = r.training("save_total_limit", t.save_total_limit);
  require_at_least<int64_t>(limit, 0);
  r.plan.save_total_limit = r.note("save_total_limit", limit);
  resolve_resuming(r);
  resolve_best_model(r);
  resolve_sample(r);
}

void resolve_async_save(Resolver& r) {
  const Auto<bool>& setting = r.config.training.async_save;
  const auto key = r.section_value("training.async_save", setting.value, setting.given() || setting.automatic());
  const RunPlan& plan = r.plan;
  const bool saves =
      plan.save_epochs || (plan.save_steps > 0 && (plan.max_steps == 0 || plan.save_steps < plan.max_steps));
  if (!saves) {
    if (key.given) r.plan.resolved.push_back({"async_save", "false", "no step follows the only checkpoint"});
    return;
  }
  r.plan.layout.async_save = setting.given() && key.value;
  r.plan.async_save_fits_memory = !setting.given();
  r.plan.resolved.push_back({"async_save", r.plan.layout.async_save ? "true" : "false",
                             setting.given() ? key.reason : "auto: whether copies of states have room is not known"});
}

/// transformers' report_to: of the programs that it names, TensorBoard is written for.
void resolve_reports(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const std::string place = r.origins.place("training.report_to");
  std::vector<std::string> programs, others;
  const Json& given = t.report_to;
  for (const Json& each : given.is_array() ? given : given.is_null() ? Json::array() : Json::array({given})) {
    require<ConfigError>(each.is_string(),
                         "{}: expected \"tensorboard\", \"none\", \"all\" or a list of names, found {}", place,
                         describe_json(each));
    programs.push_back(each.get<std::string>());
  }
  bool writes = false;
  for (const std::string& name : programs) {
    writes = writes || name == "tensorboard" || name == "all";
    if (name != "tensorboard" && name != "all" && name != "none") others.push_back(name);
  }
  if (!others.empty())
    r.warn(
        fmt::format("{}: {} is not written to: metrics.jsonl has every step, and \"tensorboard\" and "
                    "deepspeed.csv_monitor are written for other programs",
                    place, fmt::join(others, ", ")));
  const auto folder = r.training("logging_dir", t.logging_dir), name = r.training("run_name", t.run_name);
  if (!writes) {
    for (const auto& each : {folder, name})
      if (each.given && !each.value.empty() && others.empty())
        r.warn(fmt::format("{} has no effect: training.report_to does not name tensorboard", each.place));
    return;
  }
  r.plan.report_dir = folder.given && !folder.value.empty() ? folder.value : r.plan.output_dir + "/runs";
  std::string part = name.value == r.plan.output_dir ? "" : name.value;  // which transformers 4 takes for a name
  std::replace(part.begin(), part.end(), '/', '_');
  if (!part.empty() && part != "." && part != "..") r.plan.report_dir += "/" + part;
  r.note("report_to", r.section_value("training.report_to", "tensorboard in " + r.plan.report_dir, true));
}

}  // namespace nought
