#include "nought/io/file_lock.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr size_t kLongestOwner = 256;
constexpr int kMostTries = 100;

/// flock(2) without waiting: 0, or the system's reason.
int try_flock(int descriptor, int kind) {
  while (::flock(descriptor, kind | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

std::string owner_in(int descriptor, const std::filesystem::path& file) {
  const std::string text = bytes_in(descriptor, file, kLongestOwner);
  const std::string line = one_line(text.substr(0, text.find('\n')));
  return line.empty() ? "another process" : line;
}

/// A disk that is full takes the owner's name away, and not the lock. 0, or the system's reason.
int write_owner(int descriptor, std::string line) {
  line += '\n';
  while (::ftruncate(descriptor, 0) != 0)
    if (errno != EINTR) return errno;
  while (!line.empty()) {
    const ssize_t count = ::pwrite(descriptor, line.data(), line.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    return static_cast<size_t>(count) == line.size() ? 0 : ENOSPC;
  }
  return 0;
}

}  // namespace

FileLock::FileLock(std::filesystem::path file, std::string_view owner) : file_(std::move(file)) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    descriptor_ = open_file(file_, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
    const int failed = descriptor_ < 0 ? errno : try_flock(descriptor_, LOCK_EX);
    if (failed == 0 && is_named(descriptor_, file_)) {
      state_ = State::held;
      const int nameless = write_owner(descriptor_, std::string(owner));
      reason_ = nameless == 0 ? "" : std::strerror(nameless);
      return;
    }
    if (failed == EWOULDBLOCK) {
      state_ = State::taken;
      owner_ = owner_in(descriptor_, file_);
    } else if (failed != 0) {
      reason_ = std::strerror(failed);
    }
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    if (failed != 0) return;
    // Its holder gave it back, and removed the file, between open() and flock().
  }
}

FileLock::FileLock(FileLock&& other) noexcept { *this = std::move(other); }

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(state_, other.state_);
  std::swap(owner_, other.owner_);
  std::swap(reason_, other.reason_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  if (in_place()) ::unlink(file_.c_str());  // while it is locked, so that whoever has opened it sees that it is gone
  ::close(descriptor_);
}

bool FileLock::in_place() const { return descriptor_ >= 0 && is_named(descriptor_, file_); }

std::optional<std::string> FileLock::owner_of(const std::filesystem::path& file) {
  const int descriptor = open_file(file, O_RDONLY | O_NOFOLLOW);
  if (descriptor < 0) return std::nullopt;
  std::optional<std::string> owner;
  if (try_flock(descriptor, LOCK_SH) == EWOULDBLOCK) owner = owner_in(descriptor, file);
  ::close(descriptor);
  return owner;
}

std::string this_process() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> since{};
  std::strftime(since.data(), since.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return fmt::format("process {} on {} since {}", ::getpid(), host_name(), since.data());
}

}  // namespace nought
