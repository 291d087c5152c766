// The plan of a run of seconds: a tiny llama on a text of numbered lines.
#pragma once

#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <fmt/format.h>

#include "nought/config/run_plan.h"

namespace nought::test {

/// Sequences of 16 tokens, two to a rank and forward pass. Batch, steps, schedule and saving are for the caller to set.
inline RunPlan plan_on_lines(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of a text.\n", i % 13);
  RunPlan plan;
  plan.model_config = tiny_llama_json();
  plan.data.sources = {{{folder.write("text.txt", text).string()}}};
  plan.data.seq_length = 16;
  plan.micro_batch = 2;
  plan.output_dir = (folder / "out").string();
  return plan;
}

}  // namespace nought::test
