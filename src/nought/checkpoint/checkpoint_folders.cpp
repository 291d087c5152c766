#include "nought/checkpoint/checkpoint_folders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fnmatch.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/run_files.h"
#include "nought/io/atomic_folder.h"
#include "nought/io/files.h"
#include "nought/io/foreign_run.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartial = ".partial", kOld = ".old";

/// What a run writes to its output folder by AtomicFile, besides checkpoints.
constexpr std::array kWritten{"metrics.jsonl",
                              "config.json",
                              "generation_config.json",
                              "trainer_state.json",
                              "model*.safetensors",
                              "model.safetensors.index.json",
                              "tokenizer*",
                              "special_tokens_map.json",
                              "chat_template.jinja"};

/// The checkpoint-STEP folders for which `wanted` holds, ascending by step.
template <class F>
std::vector<fs::path> checkpoint_folders(const fs::path& folder, F&& wanted) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(folder, error))
    if (const auto step = checkpoint_step(entry.path()); step && wanted(entry.path()))
      found.emplace_back(*step, entry.path());
  const bool absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  require<IoError>(!error || absent, "{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(path);
  return paths;
}

/// Whether the manifest is whole and of the step in the folder's name.
bool is_of_its_step(const fs::path& checkpoint) {
  try {
    read_checkpoint_info(checkpoint);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Whether a folder is what transformers' Trainer calls a checkpoint.
bool is_of_another_program(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "trainer_state.json", ignored) || holds_foreign_run(path);
}

/// The name without its ending, or "" if it has another one.
std::string without(const fs::path& path, std::string_view ending) {
  const std::string name = path.filename().string();
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : "";
}

/// Whether a save that was cut has left it under a name that no file keeps.
bool is_left_by_a_save(const fs::directory_entry& entry) {
  if (entry.is_symlink()) return false;
  const std::string saved = without(entry.path(), kPartial), replaced = without(entry.path(), kOld);
  if (entry.is_directory()) return checkpoint_step(saved) || checkpoint_step(replaced);
  return entry.is_regular_file() && !saved.empty() &&
         std::any_of(kWritten.begin(), kWritten.end(),
                     [&](const char* name) { return ::fnmatch(name, saved.c_str(), 0) == 0; });
}

/// Gives the checkpoints their names back that were moved aside for a new one, which did not get the name.
std::vector<std::string> put_back(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(folder)) {
    const std::string name = without(entry.path(), kOld);
    if (!checkpoint_step(name) || fs::exists(folder / name) || !is_checkpoint(entry.path())) continue;
    fs::rename(entry.path(), folder / name);
    names.push_back(name);
  }
  return names;
}

}  // namespace

fs::path checkpoint_path(const fs::path& folder, int64_t step) { return folder / fmt::format("{}{}", kPrefix, step); }

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  // The name that the step has, and no other: not checkpoint-007, nor checkpoint--1.
  return step >= 0 && checkpoint_path("", step) == name ? std::optional(step) : std::nullopt;
}

bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path / kManifest, error);
  // A disk that does not answer is no folder without a manifest: an older checkpoint would be taken for the last one.
  const bool answers = status.type() != fs::file_type::none;
  require<IoError>(answers, "{}: cannot tell whether it is there: {}", (path / kManifest).string(), error.message());
  return status.type() == fs::file_type::regular;
}

std::vector<fs::path> list_checkpoints(const fs::path& folder) { return checkpoint_folders(folder, is_checkpoint); }

std::vector<fs::path> incomplete_checkpoints(const fs::path& folder) {
  return checkpoint_folders(folder, [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored) && !is_checkpoint(path) && !is_of_another_program(path);
  });
}

fs::path last_checkpoint(const fs::path& folder) {
  const std::vector<fs::path> checkpoints = list_checkpoints(folder), others = incomplete_checkpoints(folder);
  require<IoError>(!checkpoints.empty(), "nothing to resume: {} holds no complete checkpoint{}", folder.string(),
                   others.empty() ? "" : fmt::format(" ({} has no manifest.json)", others.back().string()));
  return checkpoints.back();
}

void remove_checkpoint(const fs::path& path) {
  with_io_errors(path, [&] {
    fs::remove(path / kManifest);  // from here on nobody takes it for a checkpoint
    remove_all_of(path);
  });
}

void remove_old_checkpoints(const fs::path& folder, int64_t keep, const fs::path& best) {
  if (keep <= 0) return;
  std::vector<fs::path> paths = list_checkpoints(folder);
  if (static_cast<int64_t>(paths.size()) <= keep) return;
  std::erase_if(paths, [](const fs::path& path) { return !is_of_its_step(path); });
  const auto found = std::find(paths.begin(), paths.end(), best);
  if (found != paths.end() && found + 1 != paths.end()) {
    std::rotate(found, found + 1, paths.end() - 1);
    keep = std::max<int64_t>(keep, 2);
  }
  for (int64_t i = 0; i + keep < static_cast<int64_t>(paths.size()); ++i)
    remove_checkpoint(paths[static_cast<size_t>(i)]);
}

std::vector<std::string> remove_debris(const fs::path& folder) {
  std::vector<std::string> lines;
  with_io_errors(folder, [&] {
    if (const std::vector<std::string> names = put_back(folder); !names.empty())
      lines.push_back(fmt::format("gave {} in {} its name back, which a killed run had moved aside", some_of(names),
                                  folder.string()));
    std::vector<fs::path> left;
    for (const auto& entry : entries_of(folder))
      if (is_left_by_a_save(entry)) left.push_back(entry.path());
    const std::vector<fs::path> complete = list_checkpoints(folder);
    for (const fs::path& path : incomplete_checkpoints(folder))
      if (!complete.empty() && *checkpoint_step(path) < *checkpoint_step(complete.back())) left.push_back(path);
    std::vector<std::string> names;
    for (const fs::path& path : left) {
      remove_all_of(path);
      names.push_back(path.filename().string());
    }
    std::sort(names.begin(), names.end());
    if (!names.empty())
      lines.push_back(fmt::format("removed what killed runs left in {}: {}", folder.string(), some_of(names)));
  });
  return lines;
}

}  // namespace nought
