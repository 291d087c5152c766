// MappedFile: the bytes of a file, read by the system when they are looked at.
#pragma once

#include <filesystem>
#include <string_view>

namespace nought {

class MappedFile {
 public:
  /// IoError that names the file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Begins on a page.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nought
