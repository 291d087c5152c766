#include "nought/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nought/base/error.h"

namespace nought {

namespace {

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

/// A cosine from 1 at progress 0 through so many periods at progress 1, where it stays.
double wave(double periods, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * periods * 2.0 * std::min(1.0, progress)));
}
double half_cosine(double progress) { return wave(0.5, progress); }

double above(double floor, double factor) { return factor * (1 - floor) + floor; }

/// Falls from 1 at progress 0 to 0 at progress 1.
double fallen(Bend bend, double waves, double progress) {
  if (bend == Bend::linear) return 1 - progress;
  return bend == Bend::cosine ? wave(waves, progress) : 1 - std::sqrt(progress);
}

/// transformers' get_wsd_schedule().
double stable_decay_factor(const Schedule& s, int64_t step) {
  if (step < s.warmup_steps) {
    const double progress = ratio(step, s.warmup_steps);
    if (s.stable.warmup == Bend::linear) return above(s.min_ratio, progress);
    return above(s.min_ratio, 1 - (s.stable.warmup == Bend::cosine ? half_cosine(progress) : std::sqrt(1 - progress)));
  }
  const int64_t decay_begins = s.warmup_steps + stable_steps(s);
  if (step < decay_begins) return 1;
  if (step >= decay_begins + s.stable.decay_steps) return s.min_ratio;
  return above(s.min_ratio, fallen(s.stable.decay, s.waves, ratio(step - decay_begins, s.stable.decay_steps)));
}

/// transformers' get_cosine_with_min_lr_schedule_with_warmup_lr_rate().
double early_cosine_factor(const Schedule& s, int64_t step) {
  if (step < s.warmup_steps)
    return s.warmup_ratio ? above(*s.warmup_ratio, ratio(step, s.warmup_steps - 1)) : ratio(step + 1, s.warmup_steps);
  return above(s.min_ratio, wave(s.waves, ratio(step - s.warmup_steps + 1, s.total_steps - s.warmup_steps)));
}

/// transformers/optimization.py: the factor on the peak at `step`.
double hugging_face_factor(const Schedule& s, int64_t step) {
  if (s.type == ScheduleType::constant) return 1.0;
  if (s.type == ScheduleType::warmup_stable_decay) return stable_decay_factor(s, step);
  if (s.type == ScheduleType::cosine_warmup_with_min_lr) return early_cosine_factor(s, step);
  if (step < s.warmup_steps) return ratio(step, s.warmup_steps);
  if (s.type == ScheduleType::constant_with_warmup) return 1.0;
  if (s.type == ScheduleType::linear) return std::max(0.0, ratio(s.total_steps - step, s.total_steps - s.warmup_steps));
  if (s.type == ScheduleType::inverse_sqrt) {
    const int64_t timescale = s.timescale > 0 ? s.timescale : s.warmup_steps > 0 ? s.warmup_steps : 10000;
    return 1.0 / std::sqrt(ratio(step + timescale - s.warmup_steps, timescale));
  }
  const double progress = ratio(step - s.warmup_steps, s.total_steps - s.warmup_steps);
  if (s.type == ScheduleType::polynomial) {
    const double end = s.peak_lr > 0 ? s.end_lr / s.peak_lr : 0;
    return step > s.total_steps ? end : end + (1 - end) * std::pow(std::max(0.0, 1 - progress), s.power);
  }
  if (s.type == ScheduleType::cosine_with_restarts) {
    const double cycles = static_cast<double>(s.num_cycles) * progress;
    return progress >= 1 ? 0.0 : half_cosine(cycles - std::floor(cycles));
  }
  if (s.type == ScheduleType::cosine_with_min_lr) return above(s.min_ratio, wave(s.waves, progress));
  return wave(s.waves, progress);
}

double range_test_rate(const Schedule& s, int64_t iteration) {
  const double interval = ratio(iteration + 1, s.range.step_size);
  return s.min_lr * (1 + s.range.step_rate * (s.range.staircase ? std::floor(interval) : interval));
}

/// How far up the cycle is, in [0, 1], at `step` updates after its start.
double cycle_height(const Cycle& c, int64_t step) {
  const int64_t at = step % (c.first_steps + c.second_steps);
  const bool rising = at <= c.first_steps;
  const int64_t position = rising ? at : c.first_steps + c.second_steps - at;
  const int64_t length = rising ? c.first_steps : c.second_steps;
  const int64_t stairs = rising ? c.first_stairs : c.second_stairs;
  return stairs > 0 ? ratio(position * stairs / length, stairs) : ratio(position, length);
}

/// 1 + rate * the updates since the end of the cycle, counted in decay_steps; 1 without a decay.
double decay_divisor(const Cycle& c, double rate, int64_t iteration) {
  return c.decay_steps == 0 ? 1 : 1 + rate * ratio(iteration - c.first_steps - c.second_steps + 1, c.decay_steps);
}

bool in_cycle(const Cycle& c, int64_t iteration) { return iteration < c.first_steps + c.second_steps; }

double one_cycle_rate(const Schedule& s, int64_t iteration) {
  if (!in_cycle(s.cycle, iteration)) return s.min_lr / decay_divisor(s.cycle, s.cycle.decay_lr_rate, iteration);
  return s.min_lr + (s.peak_lr - s.min_lr) * cycle_height(s.cycle, iteration + 1);
}

/// deepspeed/runtime/lr_schedules.py: the rate at `iteration`, which is -1 before the schedule was first stepped.
double deepspeed_rate(const Schedule& s, int64_t iteration) {
  if (s.type == ScheduleType::lr_range_test) return range_test_rate(s, iteration);
  if (s.type == ScheduleType::one_cycle) return one_cycle_rate(s, iteration);
  const bool cosine = s.type == ScheduleType::warmup_cosine_lr;
  if (iteration < 0) return cosine ? 0.0 : s.min_lr;

  const int64_t warmup = std::max<int64_t>(2, s.warmup_steps);  // a log ramp needs log(warmup) > 0
  const double floor = cosine ? s.warmup_min_ratio * s.peak_lr : s.min_lr;
  if (iteration < warmup) {
    const double ramp = s.warmup_shape == WarmupShape::log
                            ? std::log(static_cast<double>(iteration + 1)) / std::log(static_cast<double>(warmup))
                            : ratio(iteration, warmup);
    return floor + (s.peak_lr - floor) * ramp;
  }
  if (s.type == ScheduleType::warmup_lr) return s.peak_lr;
  if (s.type == ScheduleType::warmup_decay_lr) {
    const double left = std::max(0.0, ratio(s.total_steps - iteration, s.total_steps - warmup));
    return floor + (s.peak_lr - floor) * left;
  }
  const double progress = ratio(iteration - warmup + 1, s.total_steps - warmup);
  return s.peak_lr * std::max(0.0, s.cos_min_ratio + (1.0 - s.cos_min_ratio) * half_cosine(progress));
}

}  // namespace

std::string_view name_of(ScheduleType type) {
  for (const auto& [value, name] : kScheduleNames)
    if (value == type) return name;
  return "?";
}

bool is_deepspeed(ScheduleType type) { return type >= ScheduleType::warmup_lr; }

bool needs_total_steps(ScheduleType type) {
  switch (type) {
    case ScheduleType::linear:
    case ScheduleType::cosine:
    case ScheduleType::cosine_with_restarts:
    case ScheduleType::polynomial:
    case ScheduleType::cosine_with_min_lr:
    case ScheduleType::cosine_warmup_with_min_lr:
    case ScheduleType::warmup_stable_decay:
    case ScheduleType::warmup_decay_lr:
    case ScheduleType::warmup_cosine_lr:
      return true;
    default:
      return false;
  }
}

int64_t stable_steps(const Schedule& s) {
  return s.stable.stable_steps.value_or(std::max<int64_t>(0, s.total_steps - s.warmup_steps - s.stable.decay_steps));
}

double learning_rate(const Schedule& schedule, int64_t updates_made) {
  require(updates_made >= 0, "updates_made must be >= 0, got {}", updates_made);
  return is_deepspeed(schedule.type) ? deepspeed_rate(schedule, updates_made - 1)
                                     : schedule.peak_lr * hugging_face_factor(schedule, updates_made);
}

Betas cycled_betas(const Schedule& schedule, int64_t updates_made) {
  constexpr double kBeta2 = 0.99;
  const Cycle& c = schedule.cycle;
  const int64_t iteration = updates_made - 1;
  if (iteration < 0) return {c.min_momentum, kBeta2};
  if (!in_cycle(c, iteration)) return {c.max_momentum * decay_divisor(c, c.decay_momentum_rate, iteration), kBeta2};
  return {c.max_momentum - (c.max_momentum - c.min_momentum) * cycle_height(c, iteration + 1), kBeta2};
}

}  // namespace nought
