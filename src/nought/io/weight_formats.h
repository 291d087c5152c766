// The formats in which files store weights in few bits: one table, and the values that their codes stand for.
//
// A code is a small integer. A value is (what the code stands for - an offset) * a scale, and the elements of a block
// share scale and offset. GGUF's types keep codes, scale and offset of a block together; the formats of Hugging Face
// folders keep them in tensors of their own (packed_matrix.h).
//
// Design goals: a format is a row of the table, which readers, checks and messages share. Values are those of the
// formats' own libraries, in fp32, to the bit.
// Non-goals: speed beyond that of reading a file; formats of lattices (IQ1 to IQ3) and of thirds (TQ).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "nought/base/math.h"
#include "nought/tensor/dtype.h"

namespace nought {

/// The tensor types of GGUF files that are known here, by ggml's numbers.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,  // blocks of 32 elements along a row: an f16 scale, then 32 int8 codes
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39
};
inline constexpr int64_t kQ8Block = 32;       // elements
inline constexpr int64_t kQ8BlockBytes = 34;  // their size in the file

/// Where the codes of a matrix [out, in] lie.
enum class CodeOrder : uint8_t {
  blocks,      // in the blocks of GGUF: each type has an order of its own
  rows,        // row after row, lowest bits first; a row begins at a whole word
  flat,        // the flattened matrix, the high four bits of a byte first
  down_words,  // GPTQ: int32 words of neighbours along `in`, words of one `in` side by side
  awq,         // int32 words of eight outputs in the order 0 2 4 6 1 3 5 7
  groups       // in memory alone: a folder's codes in blocks along rows (group_blocks.h)
};
/// What a code stands for.
enum class CodeTable : uint8_t {
  number,   // no code: a float
  natural,  // itself
  int8,     // itself, of two's complement
  biased,   // itself without half of the range of its bits
  e2m1,     // a float of 4 bits
  e4m3,     // a float of 8 bits
  nf4,      // quantiles of the normal distribution
  fp4,      // bitsandbytes' float of 4 bits
  iq4       // ggml's table of 16 int8
};
/// How the scale of a block is stored.
enum class ScaleKind : uint8_t {
  none,
  stored,    // a float of the file
  e8m0,      // the exponent of a power of two
  quantized  // a code itself, of scales in larger blocks
};
/// The dtype of scales that are stored.
enum class ScaleType : uint8_t { f32, f16, bf16, e4m3, e8m0, u8 };
/// What is subtracted.
enum class OffsetKind : uint8_t { none, zero_point, minimum };

struct WeightFormat {
  std::string_view name;
  int bits = 0;             // a code takes so many; 0: the folder says
  int64_t block = 0;        // elements that share a scale; 0: the folder says
  int64_t block_bytes = 0;  // a block takes so many with its scales; 0: they lie in tensors of their own
  CodeOrder order = CodeOrder::rows;
  CodeTable codes = CodeTable::natural;
  ScaleKind scales = ScaleKind::stored;
  OffsetKind offset = OffsetKind::none;
  std::optional<GgufType> gguf = std::nullopt;
  // What groups have:
  ScaleType scale_type = ScaleType::f32;
  float factor = 1;  // divides all scales

  /// Bits of one weight of a type of GGUF, with its share of the scales.
  double bits_per_weight() const { return 8.0 * static_cast<double>(block_bytes) / static_cast<double>(block); }
};

/// All formats. The first rows are those of GGUF.
std::span<const WeightFormat> weight_formats();
/// The row of that name, which must be there.
const WeightFormat& weight_format(std::string_view name);
const WeightFormat& weight_format(GgufType type);
/// The row of ggml's number; null for a type that is not read.
const WeightFormat* find_gguf_type(uint32_t number);
/// The dtype of f32, f16 or bf16.
DType plain_dtype(GgufType type);
/// The name of any of ggml's types, those that are not read too: "iq2_xs"; "" for an unknown number.
std::string_view gguf_type_name(uint32_t number);
/// The type's name in ggml: "q8_0".
std::string_view name_of(GgufType type);

/// E2M1's values by their codes, the fourth bit is the sign.
inline constexpr std::array<float, 16> kE2m1{0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
/// The value of an E8M0 scale: 2^(code - 127), 255 is no number.
float e8m0_value(uint8_t code);
/// What each code of a format stands for; biased ones have so many bits.
std::array<float, 256> code_values(CodeTable table, int bits);

/// Decodes whole blocks of a format that has them: a type of GGUF, or groups.
void decode_blocks(const WeightFormat& format, const std::byte* bytes, int64_t blocks, float* values);
/// Decodes whole blocks of a type of GGUF. `values` has room for blocks * block elements.
void decode_blocks(GgufType type, const std::byte* bytes, int64_t blocks, float* values);

/// Encodes whole blocks, on the calling thread's OpenMP team. Values are finite, and scales of blocks fit f16.
void encode_blocks(GgufType type, const float* values, int64_t blocks, std::byte* bytes);

}  // namespace nought
