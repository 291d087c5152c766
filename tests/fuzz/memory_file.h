// What the fuzz targets share: bytes as a file, and what a reader of them may do.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought::fuzz {

[[noreturn]] inline void give_up(const char* what, const char* detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail);
  std::abort();
}

/// A file of these bytes in memory, under a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      give_up("memfd", std::strerror(errno));
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// f() succeeds, or refuses with an error of ours, which is one line.
template <class F>
void accept_or_refuse(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (std::strchr(error.what(), '\n') != nullptr) give_up("an error of more than one line", error.what());
  }
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace nought::fuzz
