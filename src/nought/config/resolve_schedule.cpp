// The length of the run and its learning-rate schedule, with transformers' or with DeepSpeed's parameters.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"

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

/// ConfigError if the run ends before its decay does: a rate that does not come down is what nobody asks for.
void require_decay_fits(const RunPlan& plan) {
  const Schedule& s = plan.schedule;
  if (s.type != ScheduleType::warmup_stable_decay || plan.max_steps == 0) return;
  require<ConfigError>(
      s.warmup_steps + s.stable.stable_steps.value_or(0) + s.stable.decay_steps <= s.total_steps,
      "training.lr_scheduler_kwargs.num_decay_steps = {}: with a warmup of {} updates{} the decay does "
      "not end within the run of {} updates",
      s.stable.decay_steps, s.warmup_steps,
      s.stable.stable_steps ? fmt::format(" and {} at the peak", *s.stable.stable_steps) : "", s.total_steps);
}

/// Replaces the row of a value that only now is known.
void settle(RunPlan& plan, const std::string& key, int64_t value, const std::string& reason) {
  for (Resolved& row : plan.resolved)
    if (row.key == key) row = {key, fmt::format("{}", value), reason};
}

constexpr const char* kByEpochs = "known once the data is read";

Candidate<int64_t> warmup_of_training(const Resolver& r) {
  const TrainingConfig& t = r.config.training;
  auto steps = r.training("warmup_steps", t.warmup_steps);
  require_at_least<int64_t>(steps, 0);
  const auto ratio = r.training("warmup_ratio", t.warmup_ratio);
  require<ConfigError>(0 <= ratio.value && ratio.value <= 1, "{}: expected a number in [0, 1], got {}", ratio.place,
                       ratio.value);
  if (steps.value > 0 || !ratio.given) return steps;
  return {warmup_from_ratio(ratio.value, r.plan.max_steps), true, ratio.place, ratio.reason + " x max_steps"};
}

/// The arguments of lr_scheduler_kwargs, each of some schedules.
class ScheduleArguments {
 public:
  using Types = std::initializer_list<ScheduleType>;
  explicit ScheduleArguments(Resolver& resolver) : r_(resolver) {}

  /// True, with the value in `into`, if the argument is given. ConfigError if the run's schedule is none of its owners.
  template <class S, class T>
  bool take(const std::string& key, const S& setting, Types owners, T& into) {
    if (!setting.given) return false;
    const auto value = r_.training("lr_scheduler_kwargs." + key, setting);
    std::vector<std::string_view> names;
    for (const ScheduleType owner : owners) names.push_back(name_of(owner));
    require<ConfigError>(std::find(owners.begin(), owners.end(), r_.plan.schedule.type) != owners.end(),
                         "{}: {} has no such parameter, only {}", value.place, name_of(r_.plan.schedule.type),
                         fmt::join(names, ", "));
    into = static_cast<T>(r_.note("schedule." + key, value));
    return true;
  }
  /// Takes a number, which has to be in [least, most], or above `least` if that is not `closed`.
  template <class S, class T>
  bool take_number(const std::string& key, const S& setting, Types owners, T& into, double least, bool closed = false,
                   double most = std::numeric_limits<double>::max()) {
    if (!take(key, setting, owners, into)) return false;
    const double value = static_cast<double>(setting.value);
    require<ConfigError>(value <= most && (closed ? value >= least : value > least),
                         "{}: expected a finite number {} {}{}, got {}", place(key), closed ? ">=" : ">", least,
                         most < std::numeric_limits<double>::max() ? fmt::format(" and <= {}", most) : "",
                         setting.value);
    return true;
  }
  std::string place(const std::string& key) const { return r_.origins.place("training.lr_scheduler_kwargs." + key); }

 private:
  Resolver& r_;
};

/// min_lr and min_lr_rate, of which transformers wants exactly one.
void use_least_rate(ScheduleArguments& arguments, const SchedulerArgs& args, Schedule& schedule) {
  const ScheduleArguments::Types owners{ScheduleType::cosine_with_min_lr, ScheduleType::cosine_warmup_with_min_lr};
  double least = 0;
  const bool rate = arguments.take_number("min_lr", args.min_lr, owners, least, 0, /*closed=*/true, schedule.peak_lr),
             fraction = arguments.take_number("min_lr_rate", args.min_lr_rate, owners, schedule.min_ratio, 0,
                                              /*closed=*/true, 1);
  require<ConfigError>(!rate || !fraction, "{} contradicts {}: give one of them", arguments.place("min_lr"),
                       arguments.place("min_lr_rate"));
  if (rate && schedule.peak_lr > 0) schedule.min_ratio = least / schedule.peak_lr;
  const bool wanted = std::find(owners.begin(), owners.end(), schedule.type) != owners.end();
  require<ConfigError>(!wanted || rate || fraction, "training.lr_scheduler_type = {}: give {} or {}",
                       name_of(schedule.type), "training.lr_scheduler_kwargs.min_lr",
                       "training.lr_scheduler_kwargs.min_lr_rate");
  arguments.take_number("warmup_lr_rate", args.warmup_lr_rate, {ScheduleType::cosine_warmup_with_min_lr},
                        schedule.warmup_ratio, 0, /*closed=*/true, 1);
}

void use_stable_decay(ScheduleArguments& arguments, const SchedulerArgs& args, Schedule& schedule) {
  const ScheduleArguments::Types owner{ScheduleType::warmup_stable_decay};
  const bool given = arguments.take_number("num_decay_steps", args.num_decay_steps, owner, schedule.stable.decay_steps,
                                           0, /*closed=*/true);
  require<ConfigError>(given || schedule.type != ScheduleType::warmup_stable_decay,
                       "training.lr_scheduler_type = warmup_stable_decay: give "
                       "training.lr_scheduler_kwargs.num_decay_steps, the updates in which the rate falls at the end");
  arguments.take_number("num_stable_steps", args.num_stable_steps, owner, schedule.stable.stable_steps, 0,
                        /*closed=*/true);
  arguments.take_number("min_lr_ratio", args.min_lr_ratio, owner, schedule.min_ratio, 0, /*closed=*/true, 1);
  arguments.take("warmup_type", args.warmup_type, owner, schedule.stable.warmup);
  arguments.take("decay_type", args.decay_type, owner, schedule.stable.decay);
}

void use_schedule_arguments(Resolver& r) {
  using enum ScheduleType;
  Schedule& schedule = r.plan.schedule;
  const SchedulerArgs& args = r.config.training.lr_scheduler_kwargs;
  ScheduleArguments arguments(r);
  double cycles = 0;
  if (arguments.take_number(
          "num_cycles", args.num_cycles,
          {cosine_with_restarts, cosine, cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay}, cycles,
          0)) {
    const bool restarts = schedule.type == cosine_with_restarts;
    require<ConfigError>(!restarts || (cycles == std::floor(cycles) && cycles < 1e9), "{}: expected an integer, got {}",
                         arguments.place("num_cycles"), cycles);
    if (restarts)
      schedule.num_cycles = static_cast<int64_t>(cycles);
    else
      schedule.waves = cycles;
  }
  arguments.take_number("power", args.power, {polynomial}, schedule.power, 0);
  arguments.take_number("lr_end", args.lr_end, {polynomial}, schedule.end_lr, 0);
  arguments.take_number("timescale", args.timescale, {inverse_sqrt}, schedule.timescale, 0);
  use_least_rate(arguments, args, schedule);
  use_stable_decay(arguments, args, schedule);
  require<ConfigError>(schedule.type != polynomial || schedule.end_lr < schedule.peak_lr,
                       "training.lr_scheduler_kwargs.lr_end {} must be below learning_rate {}", schedule.end_lr,
                       schedule.peak_lr);
}

void use_hugging_face_schedule(Resolver& r) {
  Schedule& schedule = r.plan.schedule;
  const auto type = r.training("lr_scheduler_type", r.config.training.lr_scheduler_type);
  schedule.type = type.value;
  r.plan.resolved.push_back({"schedule", std::string(name_of(type.value)), type.reason});

  auto warmup = warmup_of_training(r);
  if (type.value == ScheduleType::constant) {
    if (warmup.value > 0 || r.plan.warmup_ratio > 0)
      r.warn(
          fmt::format("{} has no effect: the schedule is constant; constant_with_warmup has a warmup", warmup.place));
    warmup = {0, false, "", "a constant schedule has no warmup"};
    r.plan.warmup_ratio = 0;
  }
  schedule.warmup_steps = r.note("schedule.warmup_steps", warmup);
  if (needs_total_steps(type.value))
    schedule.total_steps = r.note("schedule.total_steps", Candidate<int64_t>{r.plan.max_steps, false, "", "max_steps"});
  use_schedule_arguments(r);
}

void require_parameters_of(const Resolver& r, ScheduleType type) {
  const DsSchedulerParams& p = r.ds.scheduler.params;
  const auto refuse = [&](bool present, const char* key) {
    require<ConfigError>(!present, "{}: {} has no parameter {}", r.origins.place("deepspeed.scheduler.params"),
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

void use_range_test(Resolver& r) {
  const DsSchedulerParams& p = r.ds.scheduler.params;
  const auto value = [&](const std::string& key, const auto& setting, double least) {
    return r.scheduler_value(key, setting, least);
  };
  r.plan.schedule.min_lr = value("lr_range_test_min_lr", p.lr_range_test_min_lr, 0);
  r.plan.schedule.range = {.step_size = value("lr_range_test_step_size", p.lr_range_test_step_size, 1),
                           .step_rate = value("lr_range_test_step_rate", p.lr_range_test_step_rate, 0),
                           .staircase = p.lr_range_test_staircase.value};
}

void use_one_cycle(Resolver& r) {
  const DsSchedulerParams& p = r.ds.scheduler.params;
  const std::string place = r.origins.place("deepspeed.scheduler.params");
  require<ConfigError>(p.cycle_min_lr.given && p.cycle_max_lr.given, "{}: OneCycle needs cycle_min_lr and cycle_max_lr",
                       place);
  const auto value = [&](const std::string& key, const auto& setting, double least) {
    return r.scheduler_value(key, setting, least);
  };
  r.plan.schedule.min_lr = value("cycle_min_lr", p.cycle_min_lr, 0);
  r.plan.schedule.peak_lr = value("cycle_max_lr", p.cycle_max_lr, 0);
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
  r.plan.schedule.cycle = cycle;
  if (cycle.cycle_momentum) r.plan.layout.sharding.optimizer.momentum_cycle = r.plan.schedule;
}

void use_deepspeed_lengths(Resolver& r, const DsSchedulerParams& params) {
  auto argument = warmup_of_training(r);
  if (r.plan.warmup_ratio > 0) argument.given = false;  // it can not be compared before the run's length is known
  const std::string warmup_key = "scheduler.params.warmup_num_steps";
  const std::optional<int64_t> fallback = r.plan.warmup_ratio > 0 ? std::nullopt : std::optional<int64_t>(1000);
  const auto warmup = r.merge(warmup_key, params.warmup_num_steps, argument, fallback);
  require_at_least<int64_t>(warmup, 0);
  // DeepSpeed divides by the logarithm of this number, and fails.
  require<ConfigError>(!params.warmup_num_steps.automatic() || warmup.value > 0 || r.plan.warmup_ratio > 0,
                       "{} = \"auto\": the run has no warmup to take; give training.warmup_steps or "
                       "training.warmup_ratio, or write a number of updates",
                       warmup.place);
  if (params.warmup_num_steps.given()) r.plan.warmup_ratio = 0;
  r.plan.schedule.warmup_steps = r.note("schedule.warmup_steps", warmup);

  if (!needs_total_steps(r.plan.schedule.type)) return;
  const Candidate<int64_t> length{r.plan.max_steps, r.plan.max_steps > 0, r.origins.place("training.max_steps"),
                                  "max_steps"};
  const auto total = r.merge("scheduler.params.total_num_steps", params.total_num_steps, length);
  require_at_least<int64_t>(total, params.total_num_steps.given() ? 1 : 0);
  r.plan.schedule.total_steps = r.note("schedule.total_steps", total);
}

void use_deepspeed_schedule(Resolver& r) {
  Schedule& schedule = r.plan.schedule;
  const DsSchedulerParams& p = r.ds.scheduler.params;
  const std::string prefix = "scheduler.params.";
  schedule.type = deepspeed_type(r.ds.scheduler.type.value);
  require_parameters_of(r, schedule.type);
  const auto asked = r.training("lr_scheduler_type", r.config.training.lr_scheduler_type);
  require<ConfigError>(!asked.given || asked.value == counterpart(schedule.type),
                       "{} = {} contradicts {} = {}; remove one of them", r.origins.place("deepspeed.scheduler.type"),
                       name_of(schedule.type), asked.place, name_of(asked.value));
  r.plan.resolved.push_back({"schedule", std::string(name_of(schedule.type)), "deepspeed: scheduler.type"});

  if (schedule.type == ScheduleType::lr_range_test) return use_range_test(r);
  if (schedule.type == ScheduleType::one_cycle) return use_one_cycle(r);
  const auto number = [&](const std::string& key, const Candidate<double>& candidate) {
    require<ConfigError>(std::isfinite(candidate.value) && candidate.value >= 0,
                         "{}: expected a finite number >= 0, got {}", candidate.place, candidate.value);
    return r.note("schedule." + key, candidate);
  };
  if (schedule.type == ScheduleType::warmup_cosine_lr) {
    schedule.warmup_min_ratio =
        number("warmup_min_ratio", r.section_value("deepspeed." + prefix + "warmup_min_ratio", p.warmup_min_ratio));
    schedule.cos_min_ratio =
        number("cos_min_ratio", r.section_value("deepspeed." + prefix + "cos_min_ratio", p.cos_min_ratio));
  } else {
    const Candidate<double> zero{0.0, false, "", "0"};
    schedule.min_lr = number("min_lr", r.merge(prefix + "warmup_min_lr", p.warmup_min_lr, zero));
    auto peak = r.training("learning_rate", r.config.training.learning_rate);
    if (!peak.given) peak = {schedule.peak_lr, false, "", "learning_rate"};
    schedule.peak_lr = number("max_lr", r.merge(prefix + "warmup_max_lr", p.warmup_max_lr, peak));
  }
  const auto shape = r.section_value("deepspeed." + prefix + "warmup_type", p.warmup_type);
  schedule.warmup_shape = shape.value;
  r.plan.resolved.push_back({"schedule.warmup_type", shape.value == WarmupShape::log ? "log" : "linear", shape.reason});
  use_deepspeed_lengths(r, p);
}

}  // namespace

/// transformers' rule: warmup_steps if positive, else the ratio of all updates.
/// DeepSpeed would hand a foreign parameter to the schedule's constructor and fail there.
RunPlan with_steps_per_epoch(RunPlan plan, int64_t steps_per_epoch) {
  if (plan.max_steps > 0) return plan;
  require<ConfigError>(steps_per_epoch >= 1, "the data gives {} updates per epoch of {} sequences each; expected >= 1",
                       steps_per_epoch, plan.layout.train_batch());
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
  require_decay_fits(plan);
  warn_of_long_warmup(plan);
  return plan;
}

void resolve_length(Resolver& r) {
  const auto steps = r.training("max_steps", r.config.training.max_steps);
  require_at_least<int64_t>(steps, -1);
  if (steps.value > 0) {
    r.plan.max_steps = r.note("max_steps", steps);
    return;
  }
  const auto epochs = r.training("num_train_epochs", r.config.training.num_train_epochs);
  require<ConfigError>(std::isfinite(epochs.value) && epochs.value > 0, "{}: expected a finite number > 0, got {}",
                       epochs.place, epochs.value);
  r.plan.num_epochs = r.note("num_epochs", epochs);
  r.plan.resolved.push_back({"max_steps", "?", fmt::format("num_epochs x updates per epoch, {}", kByEpochs)});
}

void resolve_schedule(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const bool by_ratio = t.warmup_steps.value == 0 && t.warmup_ratio.value > 0;
  if (r.plan.max_steps == 0 && by_ratio) r.plan.warmup_ratio = t.warmup_ratio.value;
  if (t.warmup_steps.value > 0 && t.warmup_ratio.value > 0)
    r.warn(fmt::format("{} = {} has no effect: {} = {} is given", r.origins.place("training.warmup_ratio"),
                       t.warmup_ratio.value, r.origins.place("training.warmup_steps"), t.warmup_steps.value));
  if (r.ds.scheduler.type.given)
    use_deepspeed_schedule(r);
  else
    use_hugging_face_schedule(r);
  require_decay_fits(r.plan);
  warn_of_long_warmup(r.plan);
}

}  // namespace nought
