// What tests of the configuration share: a RUN.json, and the plan, or the error, that resolve() makes of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"

namespace nought::test {

/// A run as somebody would write it.
inline constexpr const char* kExampleRun = R"({
  "model": {"model_type": "llama", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 704,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512},
  "data": {"files": ["/usr/include/c++/**"], "tokenizer": "bytes", "seq_length": 256},
  "training": {"max_steps": 30, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
               "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 5, "bf16": true, "seed": 1,
               "logging_steps": 1, "save_steps": 10, "output_dir": "out"},
  "deepspeed": {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}})";

inline RunPlan plan_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  return resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json", overrides), world_size);
}

/// The plan of a run whose section zero_optimization is this.
inline RunPlan plan_of_zero(const std::string& zero) {
  return plan_of(R"({"training": {"output_dir": "out"}, "deepspeed": {"zero_optimization": )" + zero + "}}");
}

inline std::string error_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  try {
    plan_of(text, world_size, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

inline std::string reason_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.reason;
  return "(no such row)";
}

inline std::string value_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.value;
  return "(no such row)";
}

inline AdamOptions adam_of(const RunPlan& plan) { return std::get<AdamOptions>(plan.layout.sharding.optimizer.method); }

}  // namespace nought::test
