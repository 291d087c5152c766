// A small run that tests of the program start as a user does, and what it leaves.
#pragma once

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/known_paths.h"
#include "support/metrics_lines.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <nlohmann/json.hpp>

namespace nought::test {

inline const std::string kProgram = known_path("nought");

/// A small run over a text of its own, in `folder`.
inline void write_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("for (int i = {}; i < {}; ++i) sum += table[i];\n", i % 7, i % 31);
  folder.write("text.txt", text);
  folder.write("run.json",
               nlohmann::json{
                   {"model",
                    {{"model_type", "llama"},
                     {"vocab_size", 256},
                     {"hidden_size", 48},
                     {"intermediate_size", 64},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"max_position_embeddings", 64}}},
                   {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 32}}},
                   {"training",
                    {{"max_steps", 6},
                     {"per_device_train_batch_size", 2},
                     {"learning_rate", 3e-3},
                     {"seed", 1},
                     {"logging_steps", 1},
                     {"save_steps", 4},
                     {"output_dir", (folder / "out").string()}}},
                   {"deepspeed", {{"zero_optimization", {{"stage", 2}}}}}}
                   .dump());
}

inline std::string train_command(const TempFolder& folder, const std::string& more) {
  return fmt::format("{} train {} {}", kProgram, (folder / "run.json").string(), more);
}

/// The lines of steps.
inline std::vector<nlohmann::json> metrics_of(const TempFolder& folder) {
  return metrics_lines(folder / "out/metrics.jsonl", "loss");
}

inline std::vector<double> losses_of(const TempFolder& folder) {
  std::vector<double> losses;
  for (const nlohmann::json& line : metrics_of(folder)) losses.push_back(line.at("loss"));
  return losses;
}

/// The first word of every line.
inline std::set<std::string> first_words_of(const std::string& text) {
  std::set<std::string> words;
  std::istringstream lines(text);
  for (std::string line, word; std::getline(lines, line);)
    if (std::istringstream(line) >> word) words.insert(word);
  return words;
}

}  // namespace nought::test
