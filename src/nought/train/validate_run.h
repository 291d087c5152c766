// What would stop a run, found before it starts, by one process that computes nothing.
//
// Design goals: `nought check` and `nought train` call the same function, so that check refuses what train refuses, in
// the same words. What train can only find in the data, check finds too, as far as reading takes seconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nought/train/run_data.h"
#include "nought/train/trainer.h"

namespace nought {

struct ValidateOptions {
  int64_t text_bytes = int64_t{1} << 20;  // see look_at_data()
  bool makes_folders = true;              // false: nothing is written
};
/// For a look without a run behind it.
inline constexpr ValidateOptions kDryRun{.text_bytes = int64_t{32} << 20, .makes_folders = false};

/// What a run begins with.
struct RunInputs {
  ModelConfig config = {};
  int64_t parameters = 0, frozen = 0;
  std::string tokenizer = {};  // its name
  DataLook data = {};
  int64_t steps_per_epoch = 0;               // updates; 0: only the whole data tells
  int64_t row_tokens = 0;                    // see Layout; 0: only the whole data tells
  std::vector<std::string> notes = {};       // lines for the user
  std::vector<std::string> compressed = {};  // lines: which layers compute with what
};

/// Opens what a run opens before it allocates anything: the model and its weight files, the tokenizer, the data, the
/// output folder, the checkpoint. Throws what the run would throw.
RunInputs validate_run(const RunPlan& plan, StartMode mode, const ValidateOptions& options = {});

/// ConfigError unless the run has as many virtual ranks as the one that wrote the checkpoint.
void require_same_virtual_ranks(const RunPlan& plan, const std::filesystem::path& checkpoint,
                                const CheckpointInfo& info);

/// What is unusual about model, tokenizer and sequences together, one line for each.
std::vector<std::string> notes_on_inputs(const RunPlan& plan, const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace nought
