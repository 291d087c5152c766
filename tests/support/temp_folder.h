// A folder of its own for one test, removed with all it holds.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.h"
#include <stdlib.h>

namespace nought::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "nought_test_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  /// Writes a file, with the folders above it.
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes, block(std::size_t{1} << 16, '\0');  // character by character it takes many times as long
  do {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    bytes.append(block, 0, static_cast<std::size_t>(stream.gcount()));
  } while (stream);
  return bytes;
}

/// Flips a bit of the byte there; twice is not at all. A negative place is one before the end.
inline void flip_bit(const std::filesystem::path& file, int64_t at, int bit = 0) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = at < 0 ? static_cast<int64_t>(std::filesystem::file_size(file)) + at : at;
  stream.seekg(place);
  const char byte = static_cast<char>(stream.get() ^ (1 << bit));
  stream.seekp(place);
  stream.put(byte);
}

/// The names of what lies in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) names.push_back(file.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace nought::test
