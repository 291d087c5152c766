// GgufFile: reads a GGUF file, or all files of a split: its metadata, and where its tensors lie.
//
// Design goals: everything that the header says is checked against the file before it is used: counts, lengths of
// strings, extents and offsets. What is wrong is one line with the file's name. Tensors are mapped, and read where they
// lie.
// Non-goals: what the names mean (models/gguf_config.h, models/gguf_weights.h); big-endian files; writing
// (gguf_writer.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nought/io/mapped_file.h"
#include "nought/io/weight_formats.h"
#include "nought/tensor/shape.h"

namespace nought {

/// A value of the metadata. Integers of all sizes are int64_t, floats double.
struct GgufField {
  std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>
      value;
};

struct GgufEntry {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;      // outermost dimension first; the file has the reverse order
  size_t file = 0;  // which one of a split holds it
  Interval bytes;   // where it lies in that file

  int64_t numel() const { return shape.numel(); }
};

class GgufFile {
 public:
  /// Opens a file; of a split its first, "NAME-00001-of-0000N.gguf", and with it all others. IoError.
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  size_t num_files() const { return files_.size(); }
  int64_t file_bytes() const;
  /// In the order of the files.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const GgufEntry* find(std::string_view name) const;
  /// The bytes of a tensor as they lie in the file. Once touched they stay in memory until release().
  std::span<const std::byte> raw(const GgufEntry& entry) const;
  void release(const GgufEntry& entry) const;

  bool has(const std::string& key) const { return metadata_.contains(key); }
  const std::map<std::string, GgufField>& metadata() const { return metadata_; }
  /// A value of the metadata; nothing if there is none. IoError, which names the key, if it is of another type.
  std::optional<int64_t> integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> boolean(const std::string& key) const;
  const std::string* text(const std::string& key) const;
  const std::vector<std::string>* texts(const std::string& key) const;
  /// An array; of a single number an array of one.
  std::vector<int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;

 private:
  void open_split();
  void parse(size_t index);

  std::filesystem::path path_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, GgufField> metadata_;  // the first file has them
  std::vector<GgufEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// True for the path of a file that GgufFile reads, by its name.
bool is_gguf_path(const std::filesystem::path& path);

}  // namespace nought
