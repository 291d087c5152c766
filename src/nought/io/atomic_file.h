// A file that appears whole or not at all: written aside, fsynced, then renamed over its final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace nought {

/// Until commit() the bytes lie in PATH.partial. The destructor removes that file if commit() was not called.
class AtomicFile {
 public:
  /// Creates PATH.partial with `bytes` bytes (holes until written). A link stays, and what it leads to is replaced.
  /// IoError names the path and the system's reason; so for a device or a pipe, which nothing may replace.
  AtomicFile(std::filesystem::path path, int64_t bytes);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// Writes at an offset, in bytes. Thread safe for disjoint ranges. IoError.
  void write(int64_t offset, std::span<const std::byte> bytes) const;
  /// Flushes the bytes to disk and renames the file to PATH, which is on disk when this returns. IoError; PATH is then
  /// the old file or the new one, whole.
  void commit();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path partial() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Flushes a folder's names to disk, which makes a rename in it durable. IoError if the disk fails.
void sync_folder(const std::filesystem::path& folder);

/// Writes a text file whole or not at all; to a device, a pipe or an open file (/dev/stdout) as it comes, where the
/// file stands. IoError.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace nought
