#include "nought/config/run_paths.h"

#include <filesystem>

#include <fmt/core.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/io/files.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// Whether the path, or the folder in which a pattern begins to look, is there. A pattern that begins with a wildcard
/// has to match.
bool leads_somewhere(const fs::path& path) {
  fs::path begin;
  std::error_code ignored;
  for (const fs::path& part : path) {
    if (part.string().find_first_of("*?[") == std::string::npos) {
      begin /= part;
      continue;
    }
    if (!begin.empty()) break;
    try {
      return !expand_glob(path.string()).empty();
    } catch (const IoError&) {
      return false;
    }
  }
  return fs::exists(begin, ignored);
}

class Anchor {
 public:
  Anchor(const std::string& run_file, std::vector<std::string>& warnings)
      : run_file_(run_file), folder_(fs::path(run_file).parent_path()), warnings_(warnings) {}

  bool needed() const { return !folder_.empty() && folder_ != "."; }

  /// `may_be_a_name`: what is nowhere may stand for something else than a path.
  void move(Json& value, bool may_be_a_name) {
    if (!value.is_string()) return;
    const auto written = value.get<std::string>();
    if (written.empty() || fs::path(written).is_absolute()) return;
    const fs::path beside = (folder_ / written).lexically_normal();
    if (leads_somewhere(beside)) {
      value = beside.string();
    } else if (leads_somewhere(written)) {
      warnings_.push_back(
          fmt::format("{}: {} is taken from the current directory; write it relative to the file", run_file_, written));
    } else if (!may_be_a_name) {
      value = beside.string();
    }
  }

  void move_all(Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_array()) return;
    for (Json& path : object[key]) move(path, false);
  }

 private:
  const std::string& run_file_;
  const fs::path folder_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void anchor_paths(Json& run, const std::string& run_file, std::vector<std::string>& warnings) {
  Anchor anchor(run_file, warnings);
  if (!run.is_object() || !anchor.needed()) return;
  if (run.contains("model")) anchor.move(run["model"], true);
  if (run.contains("deepspeed")) anchor.move(run["deepspeed"], false);
  for (const char* key : {"adapter", "peft_config"})
    if (run.contains(key)) anchor.move(run[key], false);
  if (run.contains("alignment") && run["alignment"].is_object()) {
    Json& alignment = run["alignment"];
    for (const char* key : {"ref_model", "teacher_model"})
      if (alignment.contains(key)) anchor.move(alignment[key], true);
    if (alignment.contains("reward_funcs") && alignment["reward_funcs"].is_array())
      for (Json& reward : alignment["reward_funcs"])
        if (reward.is_object() && reward.contains("path")) anchor.move(reward["path"], false);
  }
  if (!run.contains("data") || !run["data"].is_object()) return;
  Json& data = run["data"];
  anchor.move_all(data, "files");
  anchor.move_all(data, "validation_files");
  if (data.contains("sources") && data["sources"].is_array())
    for (Json& source : data["sources"]) anchor.move_all(source, "files");
  if (data.contains("tokenizer") && data["tokenizer"] != "bytes") anchor.move(data["tokenizer"], true);
  if (data.contains("chat_template")) anchor.move(data["chat_template"], true);
}

}  // namespace nought
