#include "nought/checkpoint/output_folder.h"

#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint_folders.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = ".nought.lock";

/// Asks until it gives nothing, or the time is over. Its last answer.
template <class F>
std::optional<std::string> ask_for(std::chrono::milliseconds patience, F&& ask) {
  constexpr std::chrono::milliseconds kPause{50};
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::optional<std::string> answer = ask();
    if (!answer || std::chrono::steady_clock::now() >= end) return answer;
    std::this_thread::sleep_for(kPause);
  }
}

[[noreturn]] void fail_in_use(const fs::path& folder, const std::string& owner) {
  fail<ConfigError>(
      "training.output_dir {} is in use: {} trains into it; wait for its end, stop it, or choose another folder",
      folder.string(), owner);
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, std::chrono::milliseconds patience) : folder_(std::move(folder)) {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  if (!fs::is_directory(folder_, ignored)) return;
  take(patience);
  if (lock_->state() == FileLock::State::held) {
    if (!lock_->reason().empty())
      notes_.push_back(fmt::format("{}: cannot be written ({}): the lock holds, and does not say who has it",
                                   (folder_ / kLockFile).string(), lock_->reason()));
    for (std::string& line : remove_debris(folder_)) notes_.push_back(std::move(line));
  } else {
    notes_.push_back(
        fmt::format("training.output_dir {} cannot be locked ({}): nothing keeps a second run from writing there",
                    folder_.string(), lock_->reason()));
  }
}

OutputFolder::~OutputFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFolder::take(std::chrono::milliseconds patience) {
  const std::string self = this_process();
  const auto owner = ask_for(patience, [&]() -> std::optional<std::string> {
    lock_.emplace(folder_ / kLockFile, self);
    return lock_->state() == FileLock::State::taken ? std::optional(lock_->owner()) : std::nullopt;
  });
  if (owner) fail_in_use(folder_, *owner);
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = open_file(folder_, O_RDONLY | O_DIRECTORY);
}

std::string OutputFolder::keep() {
  if (descriptor_ < 0 || is_named(descriptor_, folder_)) {
    // The lock file alone may be gone, by rm of all files.
    if (lock_ && lock_->state() == FileLock::State::held && !lock_->in_place()) take(kPatience);
    return "";
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  require<IoError>(!error, "training.output_dir {} was removed or moved, and cannot be made again: {}",
                   folder_.string(), error.message());
  take(kPatience);
  return fmt::format(
      "training.output_dir {} was removed or moved: the run goes on in a new one, with all of metrics.jsonl and "
      "without "
      "the checkpoints so far",
      folder_.string());
}

void OutputFolder::require_free(const fs::path& folder, std::chrono::milliseconds patience) {
  const auto owner = ask_for(patience, [&] { return owner_of(folder); });
  if (owner) fail_in_use(folder, *owner);
}

std::optional<std::string> OutputFolder::owner_of(const fs::path& folder) {
  return FileLock::owner_of(folder / kLockFile);
}

}  // namespace nought
