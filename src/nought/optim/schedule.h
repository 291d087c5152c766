// Learning-rate schedules: the rate of every update as a pure function of the update's index.
//
// Design goals: the exact arithmetic of Hugging Face's and of DeepSpeed's schedules, so that a curve can be laid over
// theirs; no state, so that resuming needs nothing but the number of updates made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace nought {

enum class ScheduleType {
  constant,                   // Hugging Face: always the peak
  constant_with_warmup,       // Hugging Face: ramp, then the peak
  linear,                     // Hugging Face: ramp, then a straight line to 0 at total_steps
  cosine,                     // Hugging Face: ramp, then half a cosine to 0 at total_steps
  cosine_with_restarts,       // Hugging Face: ramp, then num_cycles half cosines, each from the peak to 0
  polynomial,                 // Hugging Face: ramp, then (steps left)^power to end_lr at total_steps
  inverse_sqrt,               // Hugging Face: ramp, then 1 / sqrt(step)
  cosine_with_min_lr,         // Hugging Face: ramp, then half a cosine to min_ratio of the peak at total_steps
  cosine_warmup_with_min_lr,  // the same one update ahead, with a ramp that begins at warmup_ratio of the peak
  warmup_stable_decay,        // Hugging Face: ramp from min_ratio, then the peak, then a decay to min_ratio
  warmup_lr,                  // DeepSpeed WarmupLR: ramp from min_lr, then the peak
  warmup_decay_lr,   // DeepSpeed WarmupDecayLR: ramp from min_lr, then a straight line to min_lr at total_steps
  warmup_cosine_lr,  // DeepSpeed WarmupCosineLR: ramp from warmup_min_ratio, then half a cosine to cos_min_ratio
  lr_range_test,     // DeepSpeed LRRangeTest: from min_lr upwards without end
  one_cycle,         // DeepSpeed OneCycle: from min_lr to the peak and back, then a decay
};

inline constexpr std::array<std::pair<ScheduleType, std::string_view>, 15> kScheduleNames{{
    {ScheduleType::constant, "constant"},
    {ScheduleType::constant_with_warmup, "constant_with_warmup"},
    {ScheduleType::linear, "linear"},
    {ScheduleType::cosine, "cosine"},
    {ScheduleType::cosine_with_restarts, "cosine_with_restarts"},
    {ScheduleType::polynomial, "polynomial"},
    {ScheduleType::inverse_sqrt, "inverse_sqrt"},
    {ScheduleType::cosine_with_min_lr, "cosine_with_min_lr"},
    {ScheduleType::cosine_warmup_with_min_lr, "cosine_warmup_with_min_lr"},
    {ScheduleType::warmup_stable_decay, "warmup_stable_decay"},
    {ScheduleType::warmup_lr, "WarmupLR"},
    {ScheduleType::warmup_decay_lr, "WarmupDecayLR"},
    {ScheduleType::warmup_cosine_lr, "WarmupCosineLR"},
    {ScheduleType::lr_range_test, "LRRangeTest"},
    {ScheduleType::one_cycle, "OneCycle"},
}};

std::string_view name_of(ScheduleType type);
/// True for DeepSpeed's schedules, which lag one update behind (see learning_rate).
bool is_deepspeed(ScheduleType type);
/// True where the schedule ends at total_steps.
bool needs_total_steps(ScheduleType type);

/// The shape of DeepSpeed's ramp: log(i + 1) / log(warmup_steps), or i / warmup_steps.
enum class WarmupShape { log, linear };

/// warmup_stable_decay: how a ramp or a decay bends between min_ratio and the peak.
enum class Bend { linear, cosine, one_minus_sqrt };

/// warmup_stable_decay: the peak for stable_steps updates, by default all that the warmup and the decay leave of
/// total_steps; then the decay.
struct StableDecay {
  int64_t decay_steps = 0;
  std::optional<int64_t> stable_steps = {};
  Bend warmup = Bend::linear, decay = Bend::cosine;
};

/// LRRangeTest: min_lr * (1 + rate * updates / size); the quotient rounded down where it is a staircase.
struct RangeTest {
  int64_t step_size = 2000;
  double step_rate = 1;
  bool staircase = false;
};

/// OneCycle: up in first_steps updates, down in second_steps, by stairs where their number is not 0; then min_lr /
/// (1 + decay_lr_rate * updates / decay_steps). The momentum goes the other way.
struct Cycle {
  int64_t first_steps = 2000, second_steps = 2000;
  int64_t first_stairs = 0, second_stairs = 0;
  int64_t decay_steps = 0;  // 0 = no decay
  double decay_lr_rate = 0;
  bool cycle_momentum = true;
  double min_momentum = 0.8, max_momentum = 0.9, decay_momentum_rate = 0;
};

struct Schedule {
  ScheduleType type = ScheduleType::linear;
  double peak_lr = 5e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // updates of the whole run; where needs_total_steps

  // Hugging Face's schedules only.
  int64_t num_cycles = 1;  // cosine_with_restarts
  double waves = 0.5;      // whole periods of the other cosines between the warmup and the end
  double power = 1;        // polynomial
  double end_lr = 1e-7;    // polynomial
  int64_t timescale = 0;   // inverse_sqrt; 0 = warmup_steps, or 10000 without a warmup
  double min_ratio = 0;    // the least rate of those with min_lr and of warmup_stable_decay, as a fraction of the peak
  std::optional<double> warmup_ratio = {};  // cosine_warmup_with_min_lr: that of its first update; 1 / warmup_steps
  StableDecay stable = {};                  // warmup_stable_decay

  // DeepSpeed's schedules only.
  WarmupShape warmup_shape = WarmupShape::log;
  double min_lr = 0;            // WarmupLR, WarmupDecayLR, LRRangeTest, OneCycle
  double warmup_min_ratio = 0;  // WarmupCosineLR, as a fraction of the peak
  double cos_min_ratio = 1e-4;  // WarmupCosineLR, as a fraction of the peak
  RangeTest range = {};         // LRRangeTest
  Cycle cycle = {};             // OneCycle, whose peak is peak_lr
};

/// warmup_stable_decay: the updates at the peak.
int64_t stable_steps(const Schedule& schedule);

/// The learning rate of the update that comes after `updates_made` updates (so 0 for the first one). Skipped updates
/// do not count.
///
/// Hugging Face's schedules give lr_lambda(updates_made): with a warmup the first update has rate 0.
/// DeepSpeed steps its schedule after each update, starting at iteration -1, so update k runs at iteration k - 1:
/// the first update has the schedule's lowest rate (min_lr; 0 for WarmupCosineLR), and so has WarmupLR's second.
double learning_rate(const Schedule& schedule, int64_t updates_made);

struct Betas {
  double beta1 = 0.9, beta2 = 0.999;
};
/// Adam's betas in the update after `updates_made` updates of a OneCycle schedule with cycle_momentum: the first goes
/// from max_momentum to min_momentum and back while the rate rises and falls, the second is 0.99. The very first update
/// has min_momentum (DeepSpeed's OneCycle starts its optimizer so).
Betas cycled_betas(const Schedule& schedule, int64_t updates_made);

}  // namespace nought
