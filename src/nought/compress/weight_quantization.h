// WeightQuantization: which layers of a model compute with weights of few bits, and from which step on: DeepSpeed's
// compression_training.weight_quantization.
//
// Design goals: the meaning and the schedule of DeepSpeed (compression/, runtime/quantize.py): the weights that a step
// computes with are rounded, what the optimizer updates is not. Non-goals: the names of a model's layers, which
// zero/rounded_weights.h looks for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/compress/quantizers.h"
#include "nought/compress/schedules.h"

namespace nought {

/// One of different_groups.
struct WeightGroup {
  std::string name;
  std::vector<std::string> modules;  // regular expressions that are searched for in the names of layers
  BitSchedule bits = {};

  bool operator==(const WeightGroup&) const = default;
};

/// How a step rounds the weights of a group.
struct WeightRounding {
  Quantizer quantizer;
  double unquantized_share = 0;  // of the weight, added to the share of the rounded one
  bool stochastic = false;
};

struct WeightQuantization {
  int64_t schedule_offset = 0;  // updates before the first step that rounds
  int64_t quantize_groups = 1;  // of each matrix; an embedding has one for each row
  QuantizerScale scale = QuantizerScale::symmetric;
  bool stochastic = false;
  bool in_forward = false;                  // target_bits hold from the first step that rounds
  std::optional<double> mixed_change = {};  // fp16_mixed_quantize: what the unquantized share loses with each step
  uint64_t seed = 0;                        // of stochastic rounding
  std::vector<WeightGroup> groups = {};

  /// What the step after so many updates does to the weights of a group; nothing before the schedule's offset.
  std::optional<WeightRounding> rounding_at(const WeightGroup& group, int64_t updates) const;
  /// "8 to 6 bits, symmetric, from step 1 on, 7 bits from 50, 6 bits from 100".
  std::string describe(const WeightGroup& group) const;
};

/// rounded = the values that a step computes with for one matrix or table, in `groups` groups of neighbours. Both may
/// be the same memory unless there is an unquantized share. dither: empty, or a number for each element, from -0.5 to
/// 0.5.
void round_weights(const WeightRounding& rounding, int64_t groups, std::span<const float> stored,
                   std::span<float> rounded, std::span<const float> dither = {});

}  // namespace nought
