// MappedFile: a file mapped into memory, read-only. The system reads a page of it when it is first touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "nought/base/math.h"

namespace nought {

class MappedFile {
 public:
  /// Maps the file. IoError, which names it, if it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// All bytes of the file. The first one is page-aligned.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// The same bytes as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  /// Gives the pages of these bytes back to the system, so that a process that reads a large file does not hold all of
  /// it. They stay mapped, and are read again when they are next touched.
  void release(Interval bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nought
