// A run.json of a run that takes a millisecond per step, for tests of the program.
#pragma once

#include <string>

#include "support/temp_folder.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace nought::test {

inline nlohmann::json small_model_json() {
  return {{"model_type", "llama"},        {"vocab_size", 256},      {"hidden_size", 16},
          {"intermediate_size", 24},      {"num_hidden_layers", 1}, {"num_attention_heads", 2},
          {"max_position_embeddings", 32}};
}

/// Writes the folder's text.txt and run.json of a run of `steps` steps into its folder out. Returns the path of
/// run.json.
inline std::filesystem::path write_small_run(const TempFolder& folder, int64_t steps, int64_t save_steps = 0) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of {}.\n", i % 7, i % 31);
  const nlohmann::json run{{"model", small_model_json()},
                           {"data", {{"files", {folder.write("text.txt", text).string()}}, {"seq_length", 32}}},
                           {"training",
                            {{"max_steps", steps},
                             {"per_device_train_batch_size", 2},
                             {"learning_rate", 1e-3},
                             {"lr_scheduler_type", "constant"},
                             {"save_steps", save_steps},
                             {"output_dir", (folder / "out").string()}}}};
  return folder.write("run.json", run.dump());
}

}  // namespace nought::test
