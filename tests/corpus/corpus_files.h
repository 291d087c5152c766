// What tests of commands read and write: JSON lines in folders.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/files.h"

namespace nought::test {

/// The names and the bytes of the shards of a folder.
inline std::vector<std::pair<std::string, std::string>> shards_of(const std::filesystem::path& folder) {
  std::vector<std::pair<std::string, std::string>> shards;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".jsonl")
      shards.emplace_back(entry.path().filename().string(), read_bytes(entry.path()));
  std::sort(shards.begin(), shards.end());
  return shards;
}

/// The values of a key of all records, in order.
inline std::vector<std::string> values_of(const std::filesystem::path& folder, const char* key) {
  std::vector<std::string> values;
  for (const auto& [name, bytes] : shards_of(folder))
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = bytes.find('\n', begin);
      values.push_back(Json::parse(bytes.substr(begin, end - begin)).at(key).get<std::string>());
      begin = end + 1;
    }
  return values;
}

/// A line of JSON lines.
inline std::string record(const std::string& id, const std::string& text) {
  return Json{{"id", id}, {"text", text}}.dump() + "\n";
}

}  // namespace nought::test
