// Lines of metrics.jsonl: those of steps have "loss", of validations "eval_loss", of checkpoints "save_seconds".
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace nought::test {

/// The lines that have `key`.
inline std::vector<nlohmann::json> metrics_lines(const std::filesystem::path& file, const char* key) {
  std::vector<nlohmann::json> lines;
  std::ifstream stream(file);
  for (std::string text; std::getline(stream, text);)
    if (nlohmann::json line = nlohmann::json::parse(text); line.contains(key)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace nought::test
