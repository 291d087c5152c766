// Learning-rate schedules: the rate of every update as a pure function of the update's index.
//
// Design goals: the exact arithmetic of Hugging Face's and of DeepSpeed's schedules, so that a curve can be laid over
// theirs; no state, so that resuming needs nothing but the number of updates made.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace nought {

enum class ScheduleType {
  constant,              // Hugging Face: always the peak
  constant_with_warmup,  // Hugging Face: ramp, then the peak
  linear,                // Hugging Face: ramp, then a straight line to 0 at total_steps
  cosine,                // Hugging Face: ramp, then half a cosine to 0 at total_steps
  warmup_lr,             // DeepSpeed WarmupLR: ramp from min_lr, then the peak
  warmup_decay_lr,       // DeepSpeed WarmupDecayLR: ramp from min_lr, then a straight line to min_lr at total_steps
  warmup_cosine_lr,      // DeepSpeed WarmupCosineLR: ramp from warmup_min_ratio, then half a cosine to cos_min_ratio
};

inline constexpr std::array<std::pair<ScheduleType, std::string_view>, 7> kScheduleNames{{
    {ScheduleType::constant, "constant"},
    {ScheduleType::constant_with_warmup, "constant_with_warmup"},
    {ScheduleType::linear, "linear"},
    {ScheduleType::cosine, "cosine"},
    {ScheduleType::warmup_lr, "WarmupLR"},
    {ScheduleType::warmup_decay_lr, "WarmupDecayLR"},
    {ScheduleType::warmup_cosine_lr, "WarmupCosineLR"},
}};

std::string_view name_of(ScheduleType type);
/// True for DeepSpeed's schedules, which lag one update behind (see learning_rate).
bool is_deepspeed(ScheduleType type);
/// True where the schedule ends at total_steps.
bool needs_total_steps(ScheduleType type);

/// The shape of DeepSpeed's ramp: log(i + 1) / log(warmup_steps), or i / warmup_steps.
enum class WarmupShape { log, linear };

struct Schedule {
  ScheduleType type = ScheduleType::linear;
  double peak_lr = 5e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // updates of the whole run; where needs_total_steps

  // DeepSpeed's schedules only.
  WarmupShape warmup_shape = WarmupShape::log;
  double min_lr = 0;            // WarmupLR, WarmupDecayLR
  double warmup_min_ratio = 0;  // WarmupCosineLR, as a fraction of the peak
  double cos_min_ratio = 1e-4;  // WarmupCosineLR, as a fraction of the peak
};

/// The learning rate of the update that comes after `updates_made` updates (so 0 for the first one). Skipped updates
/// do not count.
///
/// Hugging Face's schedules give lr_lambda(updates_made): with a warmup the first update has rate 0.
/// DeepSpeed steps its schedule after each update, starting at iteration -1, so update k runs at iteration k - 1:
/// the first update has the schedule's lowest rate (min_lr; 0 for WarmupCosineLR), and so has WarmupLR's second.
double learning_rate(const Schedule& schedule, int64_t updates_made);

}  // namespace nought
