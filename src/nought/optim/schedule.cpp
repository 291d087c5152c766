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

/// Half a cosine: 1 at progress 0, 0 at progress 1 and after.
double half_cosine(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress))); }

/// transformers/optimization.py: the factor on the peak at `step`.
double hugging_face_factor(const Schedule& s, int64_t step) {
  if (s.type == ScheduleType::constant) return 1.0;
  if (step < s.warmup_steps) return ratio(step, s.warmup_steps);
  if (s.type == ScheduleType::constant_with_warmup) return 1.0;
  if (s.type == ScheduleType::linear) return std::max(0.0, ratio(s.total_steps - step, s.total_steps - s.warmup_steps));
  return half_cosine(ratio(step - s.warmup_steps, s.total_steps - s.warmup_steps));
}

/// deepspeed/runtime/lr_schedules.py: the rate at `iteration`, which is -1 before the schedule was first stepped.
double deepspeed_rate(const Schedule& s, int64_t iteration) {
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
  return type == ScheduleType::linear || type == ScheduleType::cosine || type == ScheduleType::warmup_decay_lr ||
         type == ScheduleType::warmup_cosine_lr;
}

double learning_rate(const Schedule& schedule, int64_t updates_made) {
  require(updates_made >= 0, "updates_made must be >= 0, got {}", updates_made);
  return is_deepspeed(schedule.type) ? deepspeed_rate(schedule, updates_made - 1)
                                     : schedule.peak_lr * hugging_face_factor(schedule, updates_made);
}

}  // namespace nought
