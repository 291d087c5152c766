// Reads a safetensors file, or a state dict that torch.save() wrote.
//
// Design goals: the whole header is validated before any tensor is read. A malformed file gives an IoError that names
// the file, the tensor and what is wrong. A read touches only the bytes that it needs, so that a rank pays for its own
// part.
// Non-goals: files that another process truncates while they are mapped; writing (safetensors_writer.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/base/math.h"
#include "nought/io/convert.h"
#include "nought/io/mapped_file.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// The format's name of a dtype, "BF16", or of what a file stores in its place: "F8_E4M3".
std::string_view safetensors_name(DType dtype, std::optional<Float8> packed = {});

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Interval bytes;                     // within the data that follows the header
  std::optional<Float8> packed = {};  // the 8-bit float that the file stores, if any; `dtype` holds its values exactly

  int64_t element_size() const { return packed ? 1 : size_of(dtype); }
};

struct TorchTensors;

class SafetensorsFile {
 public:
  /// Maps the file and checks all of its header. A file that torch.save() wrote is read as well: see torch_archive.h.
  /// IoError.
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// In the order of their bytes.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// The names of all tensors, those of an unsupported dtype included.
  std::vector<std::string> names() const;
  /// nullptr if there is no such tensor; IoError if its dtype is one that Nought does not compute with (BOOL, I16).
  const TensorEntry* find(std::string_view name) const;
  /// As find(), but a missing tensor is an IoError with the nearest name.
  const TensorEntry& at(std::string_view name) const;

  /// The bytes of a tensor as they lie in the file. They are not counted in bytes_read(), and once touched they stay in
  /// memory until release().
  std::span<const std::byte> raw(const TensorEntry& entry) const;
  void release(const TensorEntry& entry) const { release(entry.bytes); }
  /// Reads the given elements of the flattened tensor into `destination` (of as many elements, any shape), converted to
  /// its dtype: any float to any float, integers to integers that hold them. Pages are given back to the system as they
  /// are read, so that a process that reads a large file does not hold all of it.
  void read(std::string_view name, Interval elements, const Tensor& destination) const;
  /// A new tensor that holds all of `name`, in the entry's dtype, where host code may write.
  Tensor load(std::string_view name, Memory& memory, Category category = Category::parameters) const;
  /// How many bytes of the file read() and load() have touched.
  int64_t bytes_read() const { return bytes_read_->load(); }
  int64_t file_bytes() const { return std::ssize(file_->bytes()); }

 private:
  std::span<const std::byte> data() const;
  void release(Interval bytes) const;
  void parse(std::string_view header);
  void parse_entry(const std::string& name, const Json& description);
  void check_layout();
  void take(TorchTensors tensors);
  void index_entries();

  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  int64_t data_begin_ = 0;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::unordered_map<std::string, std::string> unsupported_;  // tensor -> dtype, kept out of entries()
  std::shared_ptr<std::atomic<int64_t>> bytes_read_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace nought
