// CorpusFolder: a folder of JSON lines that grows shard by shard, and says how far its input has come.
//
// A shard appears whole or not at all. A run that was killed goes on behind the last whole one, to the same files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"
#include "nought/corpus/documents.h"

namespace nought {

/// How far a folder has come.
struct CorpusFolderState {
  std::string settings;  // what the files depend on, inputs included
  int64_t file = 0, offset = 0, line = 0;
  int64_t shards = 0;
  bool complete = false;
  Json report;

  template <class V>
  void visit(V& v) {
    v("settings", settings, "what the files depend on");
    v("file", file, "number of the input file that goes on");
    v("offset", offset, "where it goes on, in bytes of its content");
    v("line", line, "the line there");
    v("shards", shards, "shards that are whole");
    v("complete", complete, "false while input is left");
    v("report", report, "what was counted so far");
  }
  DocumentPlace place() const { return {static_cast<size_t>(file), offset, line}; }
};

struct CorpusFolderOptions {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> rejected = {};  // where what is left out goes
  int64_t shard_bytes = int64_t{256} << 20;
  bool overwrite = false;  // whether to remove what another run left
};

class CorpusFolder {
 public:
  /// Creates the folders, or takes up what a run with the same settings has left. ConfigError if they hold something
  /// else; IoError.
  CorpusFolder(CorpusFolderOptions options, std::string settings);
  const CorpusFolderState& state() const { return state_; }
  /// Whether there was nothing to go on with.
  bool is_new() const { return is_new_; }

  /// Appends lines to the shard. IoError.
  void keep(std::string_view lines) { append(kept_, options_.folder, lines); }
  /// Appends lines to the shard of what is left out, if it has a folder.
  void reject(std::string_view lines);
  /// Whether the shard has its size.
  bool is_full() const;
  /// Ends the shard, whose input ends at `place`. IoError.
  void save(const DocumentPlace& place, Json report, bool complete);

 private:
  struct Shard {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{nullptr, std::fclose};
    int64_t bytes = 0;
  };
  std::filesystem::path shard_path(const std::filesystem::path& folder, bool partial) const;
  void append(Shard& shard, const std::filesystem::path& folder, std::string_view lines);
  void finish(Shard& shard, const std::filesystem::path& folder);
  void start_anew(const std::filesystem::path& folder) const;

  CorpusFolderOptions options_;
  CorpusFolderState state_;
  bool is_new_ = true;
  Shard kept_, rejected_;
};

/// Names, sizes and times of files, for settings.
std::string identity_of(const std::vector<std::filesystem::path>& files);

}  // namespace nought
