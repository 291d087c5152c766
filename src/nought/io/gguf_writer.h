// Writes GGUF files, which llama.cpp and related programs read: first metadata, then tensors, which are streamed.
//
// Design goals: the file is version 3 as ggml's docs/gguf.md has it, little-endian, with data aligned to 32 bytes. It
// exists whole or not at all. However large the tensors are, the writer holds one stretch of elements at a time.
// Non-goals: reading GGUF; what the names mean (gguf_model.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "nought/io/atomic_file.h"
#include "nought/io/coverage.h"
#include "nought/io/weight_formats.h"
#include "nought/tensor/tensor.h"

namespace nought {

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;  // outermost dimension first; the file has the reverse order

  int64_t bytes() const;
};

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>, std::vector<float>>;
/// Keys and values in the order in which they are written.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

class GgufWriter {
 public:
  /// Lays the file out and writes all but the tensors. IoError, also for a tensor whose rows are not whole blocks.
  GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Writes elements of the flattened tensor, converted from `dtype`, which is any float. Each element is written
  /// exactly once, and in whole blocks: else IoError.
  void write(size_t tensor, Interval elements, DType dtype, const std::byte* source);
  /// Gives the file its name. IoError if elements are missing. Without this call no file remains.
  void finish();

 private:
  void write_block(size_t tensor, Interval elements, DType dtype, const std::byte* source);

  std::vector<GgufTensor> tensors_;
  std::vector<int64_t> offsets_;  // where each tensor begins in the file
  std::vector<Coverage> written_;
  std::vector<std::byte> encoded_;
  std::vector<float> values_;
  std::optional<AtomicFile> file_;
};

}  // namespace nought
