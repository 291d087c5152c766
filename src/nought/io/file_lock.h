// FileLock: an exclusive lock on a file, which ends with the process that holds it, however that ends.
//
// The lock is flock(2)'s. The file holds a line that says who has the lock. It is removed when the lock is given back;
// a process that was killed leaves it unlocked, which is in nobody's way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace nought {

class FileLock {
 public:
  enum class State : uint8_t {
    held,
    taken,   // another process holds it: see owner()
    without  // the file cannot be made, or its file system has no locks: see reason()
  };

  /// Tries once to lock `file`, and writes `owner` into it.
  FileLock(std::filesystem::path file, std::string_view owner);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  State state() const { return state_; }
  /// If it is taken: what its holder wrote, on one line; "another process" if that is nothing yet.
  const std::string& owner() const { return owner_; }
  /// If there is no lock, or if it is held and the owner's name could not be written into it: the system's reason.
  const std::string& reason() const { return reason_; }
  /// False if the file was removed or moved, so that others may lock another one in its place.
  bool in_place() const;

  /// As owner(), if another process holds the lock of `file`; else nothing. The lock is not taken.
  static std::optional<std::string> owner_of(const std::filesystem::path& file);

 private:
  std::filesystem::path file_;
  State state_ = State::without;
  std::string owner_, reason_ = "it changes all the time";
  int descriptor_ = -1;
};

/// "process 1234 on HOST since 2026-01-31T12:00:00Z": this process, as the owner of a lock that it takes now.
std::string this_process();

}  // namespace nought
