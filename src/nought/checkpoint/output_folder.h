// OutputFolder: the output folder of a run, which is its own for as long as it runs.
//
// Design goals: two runs never write to one folder; whoever comes second is told who has it. A run that was killed is
// in nobody's way, and what it left half done is tidied up by the next. A folder that is removed or moved in mid-run is
// made again, and the run says so. Non-goals: folders that several hosts write to at once on a file system without
// locks. The run says that it has none.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nought/io/file_lock.h"

namespace nought {

class OutputFolder {
 public:
  /// How long a start waits for the folder: so long the ranks of a run may live whose launcher was killed.
  static constexpr std::chrono::milliseconds kPatience{3000};

  /// Takes the folder, which is created, and tidies it up. ConfigError, which names its owner, if another run has it. A
  /// folder that cannot be created is left to whoever looks at it next.
  explicit OutputFolder(std::filesystem::path folder, std::chrono::milliseconds patience = kPatience);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// What the user should know of the folder: one line each.
  const std::vector<std::string>& notes() const { return notes_; }
  /// If the folder is not the one that it was, makes and takes one of that name, and returns a line for the user; else
  /// "". IoError if that is impossible, ConfigError if another run has the one that is there now.
  std::string keep();

  /// ConfigError, which names its owner, if a run has the folder. It is not taken.
  static void require_free(const std::filesystem::path& folder, std::chrono::milliseconds patience = kPatience);
  /// The process of the run that has the folder, "process 1234 on HOST since ..."; nothing if none has.
  static std::optional<std::string> owner_of(const std::filesystem::path& folder);

 private:
  void take(std::chrono::milliseconds patience);

  std::filesystem::path folder_;
  std::optional<FileLock> lock_;
  int descriptor_ = -1;  // of the folder that was taken; it tells it from another of its name
  std::vector<std::string> notes_;
};

}  // namespace nought
