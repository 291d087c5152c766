// ByteSource: a file's bytes from beginning to end, decompressed if it is .gz or .zst by its content; of a Parquet file
// its rows as JSON lines. It holds a buffer, and never the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace nought {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the span with the next bytes, and returns how many there were: fewer than its size only at the end. IoError
  /// names the file and, of a compressed one that is truncated or damaged, the offset of the compressed byte.
  virtual size_t read(std::span<char> into) = 0;
  /// How many bytes of the file, compressed as it is, were read. Of a Parquet file it is the share of rows.
  virtual int64_t file_bytes() const = 0;
};

/// Opens a file for reading. gzip files may have several members, and Zstandard files several frames. IoError.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file);

/// Whether a file that begins with these bytes is not read as it is: gzip, Zstandard and Parquet.
bool is_decoded(std::span<const char> beginning);
/// The name of what open_bytes() reads from a file with this name: "a.jsonl" for "a.jsonl.gz" and for "a.parquet".
std::filesystem::path decoded_name(const std::filesystem::path& file);

}  // namespace nought
