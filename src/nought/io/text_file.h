// Text files that may be compressed (.gz, .zst) or tables (.parquet), by their content, read as the text that they
// hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "nought/io/mapped_file.h"

namespace nought {

/// All of a file, mapped. What a compressed one or a table holds is written to a file without a name in the temporary
/// folder (TMPDIR), which is gone with the mapping. IoError.
std::shared_ptr<const MappedFile> map_text(const std::filesystem::path& file);

/// The number of bytes that map_text() maps: a compressed file or a table is read for it. IoError.
int64_t text_size(const std::filesystem::path& file);

/// The beginning of a file, to see what it is: all of it, or at least `limit` bytes of what a compressed one or a
/// table holds.
class TextBeginning {
 public:
  static constexpr size_t kLimit = size_t{16} << 20;
  /// IoError.
  explicit TextBeginning(const std::filesystem::path& file, size_t limit = kLimit);
  std::string_view text() const { return mapped_ ? mapped_->text() : std::string_view(held_); }

 private:
  std::unique_ptr<const MappedFile> mapped_;
  std::string held_;
};

}  // namespace nought
