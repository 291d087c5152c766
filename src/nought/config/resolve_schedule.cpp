// The length of the run and its learning-rate schedule, with transformers' or with DeepSpeed's parameters.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "nought/config/resolver.h"

namespace nought {

namespace {

ScheduleType deepspeed_type(const std::string& name) {
  for (const auto& [type, known] : kScheduleNames)
    if (name == known) return type;
  fail<ConfigError>("unknown schedule \"{}\"", name);
}

/// transformers' counterpart of a DeepSpeed schedule: naming both is no contradiction.
ScheduleType counterpart(ScheduleType deepspeed) {
  if (deepspeed == ScheduleType::warmup_decay_lr) return ScheduleType::linear;
  if (deepspeed == ScheduleType::warmup_cosine_lr) return ScheduleType::cosine;
  if (deepspeed == ScheduleType::lr_range_test || deepspeed == ScheduleType::one_cycle) return deepspeed;
  return ScheduleType::constant_with_warmup;
}

int64_t warmup_from_ratio(double ratio, int64_t total) {
  return static_cast<int64_t>(std::ceil(ratio * static_cast<double>(total)));
}

void warn_of_long_warmup(RunPlan& plan) {
  if (plan.max_steps > 0 && plan.schedule.warmup_steps > plan.max_steps)
    plan.warnings.push_back(
        fmt::format("the warmup of {} updates is longer than the run of {}: the peak is not reached",
                    plan.schedule.warmup_steps, plan.max_steps));
}

/// Replaces the row of a value that only now is known.
void settle(RunPlan& plan, const std::string& key, int64_t value, const std::string& reason) {
  for (Resolved& row : plan.resolved)
    if (row.key == key) row = {key, fmt::format("{}", value), reason};
}

constexpr const char* kByEpochs = "known once the data is read";

}  // namespace

void Resolver::resolve_length() {
  const auto steps = training("max_steps", config_.training.max_steps);
  require_at_least<int64_t>(steps, -1);
  if (steps.value > 0) {
    plan_.max_steps = note("max_steps", steps);
    return;
  }
  const auto epochs = training("num_train_epochs", config_.training.num_train_epochs);
  require<ConfigError>(std::isfinite(epochs.value) && epochs.value > 0, "{}: expected a finite number > 0, got {}",
                       epochs.place, epochs.value);
  plan_.num_epochs = note("num_epochs", epochs);
  plan_.resolved.push_back({"max_steps", "?", fmt::format("num_epochs x updates per epoch, {}", kByEpochs)});
}

/// transformers' rule: warmup_steps if positive, else the ratio of all updates.
Candidate<int64_t> Resolver::warmup_of_training() const {
  const TrainingConfig& t = config_.training;
  auto steps = training("warmup_steps", t.warmup_steps);
  require_at_least<int64_t>(steps, 0);
  const auto ratio = training("warmup_ratio", t.warmup_ratio);
  require<ConfigError>(0 <= ratio.value && ratio.value <= 1, "{}: expected a number in [0, 1], got {}", ratio.place,
                       ratio.value);
  if (steps.value > 0 || !ratio.given) return steps;
  return {warmup_from_ratio(ratio.value, plan_.max_steps), true, ratio.place, ratio.reason + " x max_steps"};
}

void Resolver::resolve_schedule() {
  const TrainingConfig& t = config_.training;
  const bool by_ratio = t.warmup_steps.value == 0 && t.warmup_ratio.value > 0;
  if (plan_.max_steps == 0 && by_ratio) plan_.warmup_ratio = t.warmup_ratio.value;
  if (t.warmup_steps.value > 0 && t.warmup_ratio.value > 0)
    warn(fmt::format("{} = {} has no effect: {} = {} is given", origins_.place("training.warmup_ratio"),
                     t.warmup_ratio.value, origins_.place("training.warmup_steps"), t.warmup_steps.value));
  if (ds_.scheduler.type.given)
    use_deepspeed_schedule();
  else
    use_hugging_face_schedule();
  warn_of_long_warmup(plan_);
}

void Resolver::use_hugging_face_schedule() {
  Schedule& schedule = plan_.schedule;
  const auto type = training("lr_scheduler_type", config_.training.lr_scheduler_type);
  schedule.type = type.value;
  plan_.resolved.push_back({"schedule", std::string(name_of(type.value)), type.reason});

  auto warmup = warmup_of_training();
  if (type.value == ScheduleType::constant) {
    if (warmup.value > 0 || plan_.warmup_ratio > 0)
      warn(fmt::format("{} has no effect: the schedule is constant; constant_with_warmup has a warmup", warmup.place));
    warmup = {0, false, "", "a constant schedule has no warmup"};
    plan_.warmup_ratio = 0;
  }
  schedule.warmup_steps = note("schedule.warmup_steps", warmup);
  if (needs_total_steps(type.value))
    schedule.total_steps = note("schedule.total_steps", Candidate<int64_t>{plan_.max_steps, false, "", "max_steps"});
  use_schedule_arguments();
}

void Resolver::use_schedule_arguments() {
  Schedule& schedule = plan_.schedule;
  const SchedulerArgs& args = config_.training.lr_scheduler_kwargs;
  const auto take = [&](const char* key, const auto& setting, ScheduleType owner, auto& into) {
    const auto value = training(std::string("lr_scheduler_kwargs.") + key, setting);
    if (!setting.given) return;
    require<ConfigError>(schedule.type == owner, "{}: {} has no such parameter, only {}", value.place,
                         name_of(schedule.type), name_of(owner));
    require<ConfigError>(value.value > 0 && std::isfinite(static_cast<double>(value.value)),
                         "{}: expected a finite number > 0, got {}", value.place, value.value);
    into = note(std::string("schedule.") + key, value);
  };
  take("num_cycles", args.num_cycles, ScheduleType::cosine_with_restarts, schedule.num_cycles);
  take("power", args.power, ScheduleType::polynomial, schedule.power);
  take("lr_end", args.lr_end, ScheduleType::polynomial, schedule.end_lr);
  take("timescale", args.timescale, ScheduleType::inverse_sqrt, schedule.timescale);
  require<ConfigError>(schedule.type != ScheduleType::polynomial || schedule.end_lr < schedule.peak_lr,
                       "training.lr_scheduler_kwargs.lr_end {} must be below learning_rate {}", schedule.end_lr,
                       schedule.peak_lr);
}

/// DeepSpeed would hand a foreign parameter to the schedule's constructor and fail there.
void Resolver::require_parameters_of(ScheduleType type) const {
  const DsSchedulerParams& p = ds_.scheduler.params;
  const auto refuse = [&](bool present, const char* key) {
    require<ConfigError>(!present, "{}: {} has no parameter {}", origins_.place("deepspeed.scheduler.params"),
                         name_of(type), key);
  };
  const auto present = [](const auto& value) { return value.given() || value.automatic(); };
  const bool cosine = type == ScheduleType::warmup_cosine_lr, range = type == ScheduleType::lr_range_test;
  const bool cycle = type == ScheduleType::one_cycle, ramp = !cosine && !range && !cycle;
  refuse(!ramp && present(p.warmup_min_lr), "warmup_min_lr");
  refuse(!ramp && present(p.warmup_max_lr), "warmup_max_lr");
  refuse(!ramp && !cosine && present(p.warmup_num_steps), "warmup_num_steps");
  refuse(!ramp && !cosine && p.warmup_type.given, "warmup_type");
  refuse(!range && p.lr_range_test_min_lr.given, "lr_range_test_min_lr");
  refuse(!range && p.lr_range_test_step_size.given, "lr_range_test_step_size");
  refuse(!range && p.lr_range_test_step_rate.given, "lr_range_test_step_rate");
  refuse(!range && p.lr_range_test_staircase.given, "lr_range_test_staircase");
  refuse(!cycle && p.cycle_min_lr.given, "cycle_min_lr");
  refuse(!cycle && p.cycle_max_lr.given, "cycle_max_lr");
  refuse(!cycle && p.decay_lr_rate.given, "decay_lr_rate");
  refuse(!cycle && p.cycle_first_step_size.given, "cycle_first_step_size");
  refuse(!cycle && p.cycle_second_step_size.given, "cycle_second_step_size");
  refuse(!cycle && p.cycle_first_stair_count.given, "cycle_first_stair_count");
  refuse(!cycle && p.cycle_second_stair_count.given, "cycle_second_stair_count");
  refuse(!cycle && p.decay_step_size.given, "decay_step_size");
  refuse(!cycle && p.cycle_momentum.given, "cycle_momentum");
  refuse(!cycle && p.cycle_min_mom.given, "cycle_min_mom");
  refuse(!cycle && p.cycle_max_mom.given, "cycle_max_mom");
  refuse(!cycle && p.decay_mom_rate.given, "decay_mom_rate");
  refuse(!cosine && p.warmup_min_ratio.given, "warmup_min_ratio");
  refuse(!cosine && p.cos_min_ratio.given, "cos_min_ratio");
  refuse(!needs_total_steps(type) && present(p.total_num_steps), "total_num_steps");
}

void Resolver::use_deepspeed_schedule() {
  Schedule& schedule = plan_.schedule;
  const DsSchedulerParams& p = ds_.scheduler.params;
  const std::string prefix = "scheduler.params.";
  schedule.type = deepspeed_type(ds_.scheduler.type.value);
  require_parameters_of(schedule.type);
  const auto asked = training("lr_scheduler_type", config_.training.lr_scheduler_type);
  require<ConfigError>(!asked.given || asked.value == counterpart(schedule.type),
                       "{} = {} contradicts {} = {}; remove one of them", origins_.place("deepspeed.scheduler.type"),
                       name_of(schedule.type), asked.place, name_of(asked.value));
  plan_.resolved.push_back({"schedule", std::string(name_of(schedule.type)), "deepspeed: scheduler.type"});

  if (schedule.type == ScheduleType::lr_range_test) return use_range_test();
  if (schedule.type == ScheduleType::one_cycle) return use_one_cycle();
  const auto number = [&](const std::string& key, const Candidate<double>& candidate) {
    require<ConfigError>(std::isfinite(candidate.value) && candidate.value >= 0,
                         "{}: expected a finite number >= 0, got {}", candidate.place, candidate.value);
    return note("schedule." + key, candidate);
  };
  if (schedule.type == ScheduleType::warmup_cosine_lr) {
    schedule.warmup_min_ratio =
        number("warmup_min_ratio", section_value("deepspeed." + prefix + "warmup_min_ratio", p.warmup_min_ratio));
    schedule.cos_min_ratio =
        number("cos_min_ratio", section_value("deepspeed." + prefix + "cos_min_ratio", p.cos_min_ratio));
  } else {
    const Candidate<double> zero{0.0, false, "", "0"};
    schedule.min_lr = number("min_lr", merge(prefix + "warmup_min_lr", p.warmup_min_lr, zero));
    auto peak = training("learning_rate", config_.training.learning_rate);
    if (!peak.given) peak = {schedule.peak_lr, false, "", "learning_rate"};
    schedule.peak_lr = number("max_lr", merge(prefix + "warmup_max_lr", p.warmup_max_lr, peak));
  }
  const auto shape = section_value("deepspeed." + prefix + "warmup_type", p.warmup_type);
  schedule.warmup_shape = shape.value;
  plan_.resolved.push_back({"schedule.warmup_type", shape.value == WarmupShape::log ? "log" : "linear", shape.reason});
  use_deepspeed_lengths(p);
}

void Resolver::use_range_test() {
  const DsSchedulerParams& p = ds_.scheduler.params;
  const auto value = [&](const std::string& key, const auto& setting, double least) {
    return scheduler_value(key, setting, least);
  };
  plan_.schedule.min_lr = value("lr_range_test_min_lr", p.lr_range_test_min_lr, 0);
  plan_.schedule.range = {.step_size = value("lr_range_test_step_size", p.lr_range_test_step_size, 1),
                          .step_rate = value("lr_range_test_step_rate", p.lr_range_test_step_rate, 0),
                          .staircase = p.lr_range_test_staircase.value};
}

void Resolver::use_one_cycle() {
  const DsSchedulerParams& p = ds_.scheduler.params;
  const std::string place = origins_.place("deepspeed.scheduler.params");
  require<ConfigError>(p.cycle_min_lr.given && p.cycle_max_lr.given, "{}: OneCycle needs cycle_min_lr and cycle_max_lr",
                       place);
  const auto value = [&](const std::string& key, const auto& setting, double least) {
    return scheduler_value(key, setting, least);
  };
  plan_.schedule.min_lr = value("cycle_min_lr", p.cycle_min_lr, 0);
  plan_.schedule.peak_lr = value("cycle_max_lr", p.cycle_max_lr, 0);
  Cycle cycle{.first_steps = value("cycle_first_step_size", p.cycle_first_step_size, 1),
              .first_stairs = value("cycle_first_stair_count", p.cycle_first_stair_count, 0),
              .decay_steps = value("decay_step_size", p.decay_step_size, 0),
              .decay_lr_rate = value("decay_lr_rate", p.decay_lr_rate, 0),
              .cycle_momentum = p.cycle_momentum.value,
              .min_momentum = value("cycle_min_mom", p.cycle_min_mom, 0),
              .max_momentum = value("cycle_max_mom", p.cycle_max_mom, 0),
              .decay_momentum_rate = value("decay_mom_rate", p.decay_mom_rate, 0)};
  cycle.second_steps =
      p.cycle_second_step_size.given ? value("cycle_second_step_size", p.cycle_second_step_size, 1) : cycle.first_steps;
  cycle.second_stairs = p.cycle_second_stair_count.given
                            ? value("cycle_second_stair_count", p.cycle_second_stair_count, 0)
                            : cycle.first_stairs;
  require<ConfigError>(cycle.min_momentum < 1 && cycle.max_momentum < 1,
                       "{}: cycle_min_mom and cycle_max_mom must be below 1", place);
  require<ConfigError>(!cycle.cycle_momentum || cycle.decay_steps == 0 || cycle.decay_momentum_rate == 0,
                       "{}: decay_mom_rate raises the momentum without end, to 1 and above; leave it 0", place);
  plan_.schedule.cycle = cycle;
  if (cycle.cycle_momentum) plan_.layout.sharding.optimizer.momentum_cycle = plan_.schedule;
}

void Resolver::use_deepspeed_lengths(const DsSchedulerParams& params) {
  auto argument = warmup_of_training();
  if (plan_.warmup_ratio > 0) argument.given = false;  // it can not be compared before the run's length is known
  const std::string warmup_key = "scheduler.params.warmup_num_steps";
  const std::optional<int64_t> fallback = plan_.warmup_ratio > 0 ? std::nullopt : std::optional<int64_t>(1000);
  const auto warmup = merge(warmup_key, params.warmup_num_steps, argument, fallback);
  require_at_least<int64_t>(warmup, 0);
  // DeepSpeed divides by the logarithm of this number, and fails.
  require<ConfigError>(!params.warmup_num_steps.automatic() || warmup.value > 0 || plan_.warmup_ratio > 0,
                       "{} = \"auto\": the run has no warmup to take; give training.warmup_steps or "
                       "training.warmup_ratio, or write a number of updates",
                       warmup.place);
  if (params.warmup_num_steps.given()) plan_.warmup_ratio = 0;
  plan_.schedule.warmup_steps = note("schedule.warmup_steps", warmup);

  if (!needs_total_steps(plan_.schedule.type)) return;
  const Candidate<int64_t> length{plan_.max_steps, plan_.max_steps > 0, origins_.place("training.max_steps"),
                                  "max_steps"};
  const auto total = merge("scheduler.params.total_num_steps", params.total_num_steps, length);
  require_at_least<int64_t>(total, params.total_num_steps.given() ? 1 : 0);
  plan_.schedule.total_steps = note("schedule.total_steps", total);
}

RunPlan with_steps_per_epoch(RunPlan plan, int64_t steps_per_epoch) {
  if (plan.max_steps > 0) return plan;
  require<ConfigError>(steps_per_epoch >= 1, "the data gives {} updates per epoch of {} sequences each; expected >= 1",
                       steps_per_epoch, plan.train_batch);
  plan.max_steps = static_cast<int64_t>(std::ceil(plan.num_epochs * static_cast<double>(steps_per_epoch)));
  settle(plan, "max_steps", plan.max_steps, fmt::format("num_epochs x {} updates per epoch", steps_per_epoch));
  if (needs_total_steps(plan.schedule.type) && plan.schedule.total_steps == 0) {
    plan.schedule.total_steps = plan.max_steps;
    settle(plan, "schedule.total_steps", plan.max_steps, "max_steps");
  }
  if (plan.warmup_ratio > 0) {
    plan.schedule.warmup_steps = warmup_from_ratio(plan.warmup_ratio, plan.max_steps);
    settle(plan, "schedule.warmup_steps", plan.schedule.warmup_steps, "training.warmup_ratio x max_steps");
  }
  warn_of_long_warmup(plan);
  return plan;
}

}  // namespace nought
