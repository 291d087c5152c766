// When a run saves, where it resumes, which checkpoint is the best, and what text it continues on the way.
#include <algorithm>

#include <fmt/ranges.h>

#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_saving() {
  const TrainingConfig& t = config_.training;
  auto save = training("save_steps", t.save_steps);
  require_at_least<int64_t>(save, 0);
  const auto strategy = training("save_strategy", t.save_strategy);
  if (strategy.given)
    plan_.resolved.push_back({"save_strategy", std::string(enum_name(strategy.value)), strategy.reason});
  if (strategy.value != SaveStrategy::steps) {
    constexpr int64_t kOfTransformers = 500;  // which its to_dict() writes whatever the strategy is
    if (save.given && save.value != 0 && save.value != kOfTransformers)
      warn(fmt::format("{} = {} has no effect: {} is \"{}\"", save.place, save.value, strategy.place,
                       enum_name(strategy.value)));
    save = {0, true, save.place, strategy.reason};
  }
  plan_.save_epochs = strategy.value == SaveStrategy::epoch;
  plan_.save_steps = note("save_steps", save);
  const auto limit = training("save_total_limit", t.save_total_limit);
  require_at_least<int64_t>(limit, 0);
  plan_.save_total_limit = note("save_total_limit", limit);
  resolve_resuming();
  resolve_best_model();
  resolve_sample();
}

/// transformers' report_to: of the programs that it names, TensorBoard is written for.
void Resolver::resolve_reports() {
  const TrainingConfig& t = config_.training;
  const std::string place = origins_.place("training.report_to");
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
    warn(
        fmt::format("{}: {} is not written to: metrics.jsonl has every step, and \"tensorboard\" and "
                    "deepspeed.csv_monitor are written for other programs",
                    place, fmt::join(others, ", ")));
  const auto folder = training("logging_dir", t.logging_dir), name = training("run_name", t.run_name);
  if (!writes) {
    for (const auto& each : {folder, name})
      if (each.given && !each.value.empty() && others.empty())
        warn(fmt::format("{} has no effect: training.report_to does not name tensorboard", each.place));
    return;
  }
  plan_.report_dir = folder.given && !folder.value.empty() ? folder.value : plan_.output_dir + "/runs";
  std::string part = name.value == plan_.output_dir ? "" : name.value;  // which transformers 4 takes for a name
  std::replace(part.begin(), part.end(), '/', '_');
  if (!part.empty() && part != "." && part != "..") plan_.report_dir += "/" + part;
  note("report_to", section_value("training.report_to", "tensorboard in " + plan_.report_dir, true));
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
