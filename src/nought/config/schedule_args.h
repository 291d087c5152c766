// SchedulerArgs: the names and arguments of learning-rate schedules in RUN.json, as transformers has them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"
#include "nought/optim/schedule.h"

namespace nought {

/// The schedules that training.lr_scheduler_type may name. DeepSpeed's scheduler section names others.
template <>
struct EnumNames<ScheduleType> {
  static constexpr std::array<std::pair<ScheduleType, std::string_view>, 10> value{{
      {ScheduleType::linear, "linear"},
      {ScheduleType::cosine, "cosine"},
      {ScheduleType::cosine_with_restarts, "cosine_with_restarts"},
      {ScheduleType::polynomial, "polynomial"},
      {ScheduleType::inverse_sqrt, "inverse_sqrt"},
      {ScheduleType::constant, "constant"},
      {ScheduleType::constant_with_warmup, "constant_with_warmup"},
      {ScheduleType::cosine_with_min_lr, "cosine_with_min_lr"},
      {ScheduleType::cosine_warmup_with_min_lr, "cosine_warmup_with_min_lr"},
      {ScheduleType::warmup_stable_decay, "warmup_stable_decay"},
  }};
};

template <>
struct EnumNames<Bend> {
  static constexpr std::array<std::pair<Bend, std::string_view>, 3> value{
      {{Bend::linear, "linear"}, {Bend::cosine, "cosine"}, {Bend::one_minus_sqrt, "1-sqrt"}}};
};

/// transformers' lr_scheduler_kwargs.
struct SchedulerArgs {
  Setting<double> num_cycles;
  Setting<double> power{1.0};
  Setting<double> lr_end{1e-7};
  Setting<int64_t> timescale;
  Setting<double> min_lr, min_lr_rate, warmup_lr_rate;
  Setting<int64_t> num_decay_steps, num_stable_steps;
  Setting<double> min_lr_ratio{0.0};
  Setting<Bend> warmup_type{Bend::linear}, decay_type{Bend::cosine};

  template <class V>
  void visit(V& v) {
    v("num_cycles", num_cycles,
      "cosine_with_restarts: how often the cosine starts, default 1; other cosines: periods until the end, default "
      "0.5");
    v("power", power, "polynomial: its exponent");
    v("lr_end", lr_end, "polynomial: the last rate");
    v("timescale", timescale, "inverse_sqrt; default: warmup_steps, or 10000 without a warmup");
    v("min_lr", min_lr, "cosine_with_min_lr and cosine_warmup_with_min_lr: the last rate");
    v("min_lr_rate", min_lr_rate, "the same as a fraction of learning_rate; one of the two must be given");
    v("warmup_lr_rate", warmup_lr_rate,
      "cosine_warmup_with_min_lr: the first rate as a fraction of learning_rate; default: 1 / warmup_steps");
    v("num_decay_steps", num_decay_steps, "warmup_stable_decay: updates in which the rate falls; must be given");
    v("num_stable_steps", num_stable_steps,
      "warmup_stable_decay: updates at learning_rate; default: all that warmup and decay leave of the run");
    v("min_lr_ratio", min_lr_ratio, "warmup_stable_decay: the least rate as a fraction of learning_rate");
    v("warmup_type", warmup_type, "warmup_stable_decay: how the rate rises");
    v("decay_type", decay_type, "warmup_stable_decay: how the rate falls");
  }
};

}  // namespace nought
