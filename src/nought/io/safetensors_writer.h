// Writes a safetensors file without holding its tensors: all are declared first, then their elements come in any order.
//
// Design goals: a reader sees either the old file or the new one, because the new one is written aside, fsynced and
// renamed. A tensor that was not written completely is an error.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/math.h"
#include "nought/io/atomic_file.h"
#include "nought/io/coverage.h"
#include "nought/io/safetensors.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// A tensor that will be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::optional<Float8> packed = {};  // what the bytes are codes of; then `dtype` is u8

  int64_t bytes() const { return shape.numel() * size_of(dtype); }
};

class SafetensorsWriter {
 public:
  /// Lays the file out and writes its header. Tensors of wide dtypes come first, so that each is aligned to its element
  /// size. IoError.
  SafetensorsWriter(std::filesystem::path path, const std::vector<TensorSpec>& tensors);

  /// Writes elements of the flattened tensor, converted to the declared dtype. Each element is written exactly once:
  /// else IoError. ShapeError if `source` has another number of elements.
  void write(std::string_view name, Interval elements, const Tensor& source);
  /// Writes a whole tensor of the declared shape.
  void write(std::string_view name, const Tensor& source);
  /// Gives the file its name. IoError if elements of a declared tensor are missing. Without this call no file remains.
  void finish();

 private:
  struct Slot {
    TensorEntry entry;
    Coverage written = {};
  };
  std::vector<Slot> slots_;
  std::map<std::string, size_t, std::less<>> index_;
  int64_t data_begin_ = 0;
  std::optional<AtomicFile> file_;
};

/// Writes whole tensors to one file.
void save_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace nought
