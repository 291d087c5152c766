// Writes GGUF, the file that llama.cpp and its kin read: metadata, then tensors, streamed.
//
// Design goals: version 3 as ggml's docs/gguf.md has it, little-endian, data aligned to 32 bytes; it exists whole or
// not at all; memory is a block, whatever the size of the tensors. Non-goals: reading it; what the names mean
// (gguf_model.h).
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
#include "nought/tensor/tensor.h"

namespace nought {

/// ggml's number of each type of tensor that is written. q8_0: blocks of 32 along a row, an f16 scale and 32 int8.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
inline constexpr int64_t kQ8Block = 32;
inline constexpr int64_t kQ8BlockBytes = 34;
/// "q8_0".
std::string_view name_of(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;  // outermost first; the file has it the other way round

  int64_t bytes() const;
};

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>, std::vector<float>>;
/// Keys and values in the order in which they are written.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

class GgufWriter {
 public:
  /// Lays the file out and writes all but the tensors. IoError; a q8_0 tensor needs rows of whole blocks.
  GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Writes elements of the flattened tensor, from a run of any float dtype. Every element exactly once; of q8_0 whole
  /// blocks. IoError.
  void write(size_t tensor, Interval elements, DType dtype, const std::byte* source);
  /// Gives the file its name. IoError if elements are missing. Without it nothing remains.
  void finish();

 private:
  void write_block(size_t tensor, Interval elements, DType dtype, const std::byte* source);

  std::vector<GgufTensor> tensors_;
  std::vector<int64_t> offsets_;  // of each tensor in the file
  std::vector<Coverage> written_;
  std::vector<std::byte> encoded_;
  std::vector<float> values_;
  std::optional<AtomicFile> file_;
};

}  // namespace nought
