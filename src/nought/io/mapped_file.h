// MappedFile: the bytes of a file, read by the system when they are looked at.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "nought/base/math.h"

namespace nought {

class MappedFile {
 public:
  /// IoError that names the file, also for what is no regular file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Begins on a page.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// The same bytes as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  /// Hands the pages of these bytes back, so that a process that reads a large file does not come to hold it. They stay
  /// mapped and are read again when they are looked at.
  void release(Interval bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nought
