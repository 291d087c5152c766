#include "nought/checkpoint/run_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <xxhash.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/data/token_file.h"
#include "nought/data/token_folder.h"
#include "nought/io/mapped_file.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 200;  // more files of data are listed by their folders
constexpr size_t kMostNames = 3;    // in a message

uint64_t hash_of_file(const fs::path& file) {
  if (file.extension() == kTokenFileExtension) return TokenFile(file).header().content;
  const MappedFile mapped(file);
  return XXH3_64bits(mapped.bytes().data(), mapped.bytes().size());
}

std::vector<fs::path> data_files(const DataPlan& data) {
  std::vector<fs::path> files = expand_data_files(data.validation_files);
  for (const SourcePlan& source : data.sources)
    for (fs::path& file : expand_data_files(source.files)) files.push_back(std::move(file));
  return files;
}

}  // namespace

std::vector<std::string> files_of_run(const RunPlan& plan) {
  std::vector<std::string> files;
  for (const fs::path& file : data_files(plan.data)) files.push_back(file.string());
  std::error_code ignored;
  const auto add = [&](const std::string& path) {
    if (fs::is_regular_file(path, ignored)) files.push_back(path);
    if (!fs::is_directory(path, ignored)) return;
    for (const fs::directory_entry& entry : entries_of(path, ignored))
      if (entry.is_regular_file(ignored)) files.push_back(entry.path().string());
  };
  for (const std::string& file : plan.config_files) add(file);
  add(plan.model_dir), add(plan.data.tokenizer), add(plan.data.chat_template);
  return files;
}

Json hash_run_files(const RunPlan& plan) {
  std::map<std::string, uint64_t> hashes;
  const std::vector<fs::path> data = data_files(plan.data);
  for (const fs::path& file : data) {
    const uint64_t hash = hash_of_file(file);
    if (data.size() <= kMostFiles) {
      hashes[file.string()] = hash;
    } else {
      const std::string name = file.filename().string();
      uint64_t& folder = hashes[(file.parent_path() / "").string()];
      folder = XXH3_64bits_withSeed(name.data(), name.size(), folder ^ hash);
    }
  }
  std::error_code ignored;
  for (const std::string& file : plan.config_files)
    if (fs::is_regular_file(file, ignored)) hashes[file] = hash_of_file(file);
  Json json = Json::object();
  for (const auto& [file, hash] : hashes) json[file] = fmt::format("{:016x}", hash);
  return json;
}

std::string some_of(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMostNames);
  const std::string more = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "), more);
}

std::string describe_changed_files(const Json& then, const Json& now) {
  if (!then.is_object()) return "";
  std::vector<std::string> changed, added, gone;
  for (const auto& [file, hash] : now.items()) {
    const auto before = then.find(file);
    if (before == then.end())
      added.push_back(file);
    else if (*before != hash)
      changed.push_back(file);
  }
  for (const auto& [file, hash] : then.items())
    if (!now.contains(file)) gone.push_back(file);
  std::vector<std::string> parts;
  if (!changed.empty()) parts.push_back("changed since the checkpoint: " + some_of(changed));
  if (!added.empty()) parts.push_back("not read before the checkpoint: " + some_of(added));
  if (!gone.empty()) parts.push_back("not read any more: " + some_of(gone));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace nought
