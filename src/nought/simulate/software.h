// Software: what a training framework does, as far as the time of a step depends on it. Facts, no fitted numbers.
#pragma once

#include <string>

namespace nought {

struct Software {
  std::string name;
  int year = 0;
  bool fused_attention = true;  // scores never reach memory (FlashAttention, cuDNN)
  bool hides_tensor = false;    // exchanges of tensor parallelism overlap products
  bool hides_data = true;       // gradients and parameters travel behind the passes
  bool hides_pipeline = true;   // messages between stages travel behind the passes
  double eager = 1;             // element-wise passes, relative to fused ones
  double attention = 1;         // the speed of fused attention, relative to FlashAttention 2
  double gradient_bytes = 4;    // of an element that is reduced
};

/// Frameworks by name: megatron-2021, megatron-2023, deepspeed, fsdp, fsdp2, megatron-core, deepseek. ConfigError for
/// another.
const Software& software_of(const std::string& name);
/// The framework of a published table; for a table that is not known, by its other fields.
const Software& software_of_table(const std::string& table, bool hopper_or_later, int zero_stage);

}  // namespace nought
