// How the blocks of GGUF's types are decoded: ggml's dequantize_row functions (ggml-quants.c), in fp32.
#include "nought/io/gguf_blocks.h"

#include <cstring>

#include "nought/io/convert.h"
#include "nought/io/group_blocks.h"
#include "nought/io/weight_formats.h"

namespace nought {

namespace {

constexpr int kSuper = 256;  // elements of a block of the K types

int byte_at(const std::byte* bytes, int64_t index) { return std::to_integer<int>(bytes[index]); }
int signed_at(const std::byte* bytes, int64_t index) { return static_cast<int8_t>(byte_at(bytes, index)); }
int low(int byte) { return byte & 15; }
int high(int byte) { return byte >> 4; }

float half_at(const std::byte* bytes, int64_t offset) {
  f16_t half;
  std::memcpy(&half.bits, bytes + offset, sizeof(half.bits));
  return half;
}

uint32_t word_at(const std::byte* bytes, int64_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, bytes + offset, sizeof(word));
  return word;
}

/// Sixteen bytes of nibbles: the low ones are the first half of 32 elements.
template <class F>
void each_of_32(const std::byte* nibbles, float* values, F&& value) {
  for (int j = 0; j < 16; ++j) {
    values[j] = value(low(byte_at(nibbles, j)), j);
    values[j + 16] = value(high(byte_at(nibbles, j)), j + 16);
  }
}

void decode_q4_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  each_of_32(block + 2, values, [&](int q, int) { return static_cast<float>(q - 8) * d; });
}

void decode_q4_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  each_of_32(block + 4, values, [&](int q, int) { return static_cast<float>(q) * d + m; });
}

int fifth_bit(uint32_t word, int j) { return static_cast<int>(word >> j & 1) << 4; }

void decode_q5_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  const uint32_t fifth = word_at(block, 2);
  each_of_32(block + 6, values, [&](int q, int j) { return static_cast<float>((q | fifth_bit(fifth, j)) - 16) * d; });
}

void decode_q5_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  const uint32_t fifth = word_at(block, 4);
  each_of_32(block + 8, values, [&](int q, int j) { return static_cast<float>(q | fifth_bit(fifth, j)) * d + m; });
}

void decode_q8_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (int j = 0; j < kQ8Block; ++j) values[j] = static_cast<float>(signed_at(block, 2 + j)) * d;
}

/// Two bits of element i of 256: byte 32h + l, bits 2k is element 128h + 32k + l.
int two_bits(const std::byte* codes, int i) { return byte_at(codes, i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4)) & 3; }

void decode_q2_k(const std::byte* block, float* values) {
  const std::byte* codes = block + 16;
  const float d = half_at(block, 80), m = half_at(block, 82);
  for (int i = 0; i < kSuper; ++i) {
    const int scale = byte_at(block, i / 16);
    values[i] = d * static_cast<float>(low(scale)) * static_cast<float>(two_bits(codes, i)) -
                m * static_cast<float>(high(scale));
  }
}

/// Six bits of sub-block j, less 32.
int scale_of_q3_k(const std::byte* scales, int j) {
  const int four = j < 8 ? low(byte_at(scales, j)) : high(byte_at(scales, j - 8));
  const int two = byte_at(scales, 8 + j % 4) >> (2 * (j / 4)) & 3;
  return (four | two << 4) - 32;
}

void decode_q3_k(const std::byte* block, float* values) {
  const std::byte *codes = block + 32, *scales = block + 96;
  const float d = half_at(block, 108);
  for (int i = 0; i < kSuper; ++i) {
    const bool third = (byte_at(block, i % 32) >> (i / 32) & 1) != 0;
    const int q = two_bits(codes, i) - (third ? 0 : 4);
    values[i] = d * static_cast<float>(scale_of_q3_k(scales, i / 16)) * static_cast<float>(q);
  }
}

/// Scale and minimum of sub-block j of Q4_K and Q5_K, six bits each of twelve bytes.
struct ScaleAndMin {
  float scale, min;
};
ScaleAndMin six_bits(const std::byte* s, int j) {
  if (j < 4) return {static_cast<float>(byte_at(s, j) & 63), static_cast<float>(byte_at(s, j + 4) & 63)};
  return {static_cast<float>(low(byte_at(s, j + 4)) | byte_at(s, j - 4) >> 6 << 4),
          static_cast<float>(high(byte_at(s, j + 4)) | byte_at(s, j) >> 6 << 4)};
}

/// fifth: 32 bytes, bit j of which belongs to sub-block j; null for Q4_K.
void decode_q4_or_q5_k(const std::byte* block, const std::byte* fifth, const std::byte* codes, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMin sub = six_bits(block + 4, j);
    const float scale = d * sub.scale, min = m * sub.min;
    for (int l = 0; l < 32; ++l) {
      const int byte = byte_at(codes, j / 2 * 32 + l);
      const int more = fifth != nullptr ? (byte_at(fifth, l) >> j & 1) << 4 : 0;
      values[32 * j + l] = scale * static_cast<float>((j % 2 == 0 ? low(byte) : high(byte)) | more) - min;
    }
  }
}

void decode_q6_k(const std::byte* block, float* values) {
  const std::byte *lows = block, *highs = block + 128, *scales = block + 192;
  const float d = half_at(block, 208);
  for (int i = 0; i < kSuper; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, l = i % 32;
    const int byte = byte_at(lows, 64 * half + 32 * (quarter % 2) + l);
    const int two = byte_at(highs, 32 * half + l) >> (2 * quarter) & 3;
    const int q = ((quarter < 2 ? low(byte) : high(byte)) | two << 4) - 32;
    values[i] = d * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>(q);
  }
}

void decode_iq4_nl(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  each_of_32(block + 2, values, [&](int q, int) { return d * static_cast<float>(kIq4[static_cast<size_t>(q)]); });
}

/// The scale of sub-block j, less 32.
int scale_of_iq4_xs(const std::byte* block, int j) {
  const uint32_t highs = word_at(block, 0) >> 16;
  const int byte = byte_at(block, 4 + j / 2);
  return ((j % 2 == 0 ? low(byte) : high(byte)) | static_cast<int>(highs >> (2 * j) & 3) << 4) - 32;
}

void decode_iq4_xs(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (int j = 0; j < 8; ++j) {
    const float of_sub = d * static_cast<float>(scale_of_iq4_xs(block, j));
    each_of_32(block + 8 + 16 * j, values + 32 * j,
               [&](int q, int) { return of_sub * static_cast<float>(kIq4[static_cast<size_t>(q)]); });
  }
}

void decode_mxfp4(const std::byte* block, float* values) {
  const float scale = e8m0_value(static_cast<uint8_t>(byte_at(block, 0)));
  // ggml's table has integers, among which there is no -0.
  each_of_32(block + 1, values, [&](int q, int) { return kE2m1[static_cast<size_t>(q)] * scale + 0.0f; });
}

void decode_block(GgufType type, const std::byte* block, float* values) {
  switch (type) {
    case GgufType::q4_0:
      return decode_q4_0(block, values);
    case GgufType::q4_1:
      return decode_q4_1(block, values);
    case GgufType::q5_0:
      return decode_q5_0(block, values);
    case GgufType::q5_1:
      return decode_q5_1(block, values);
    case GgufType::q8_0:
      return decode_q8_0(block, values);
    case GgufType::q2_k:
      return decode_q2_k(block, values);
    case GgufType::q3_k:
      return decode_q3_k(block, values);
    case GgufType::q4_k:
      return decode_q4_or_q5_k(block, nullptr, block + 16, values);
    case GgufType::q5_k:
      return decode_q4_or_q5_k(block, block + 16, block + 48, values);
    case GgufType::q6_k:
      return decode_q6_k(block, values);
    case GgufType::iq4_nl:
      return decode_iq4_nl(block, values);
    case GgufType::iq4_xs:
      return decode_iq4_xs(block, values);
    case GgufType::mxfp4:
      return decode_mxfp4(block, values);
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      break;  // whole runs of them are converted
  }
}

}  // namespace

void read_sub_blocks(GgufType type, const std::byte* block, SubBlocks& to) {
  const auto one = [&](float scale, float min, bool has_min) {
    to.size = 32, to.has_mins = has_min, to.scales[0] = scale, to.mins[0] = min;
  };
  const auto several = [&](int count, bool has_mins, auto&& scale_and_min) {
    to.size = kSuper / count, to.has_mins = has_mins;
    for (int j = 0; j < count; ++j) {
      const ScaleAndMin each = scale_and_min(j);
      to.scales[static_cast<size_t>(j)] = each.scale, to.mins[static_cast<size_t>(j)] = each.min;
    }
  };
  const auto times = [](float d, int scale) { return d * static_cast<float>(scale); };
  switch (type) {
    case GgufType::q4_0:
    case GgufType::q5_0:
    case GgufType::q8_0:
    case GgufType::iq4_nl:
      return one(half_at(block, 0), 0, false);
    case GgufType::q4_1:
    case GgufType::q5_1:
      return one(half_at(block, 0), -half_at(block, 2), true);
    case GgufType::mxfp4:
      return one(e8m0_value(static_cast<uint8_t>(byte_at(block, 0))) / 2, 0, false);
    case GgufType::q2_k:
      return several(16, true, [&, d = half_at(block, 80), m = half_at(block, 82)](int j) {
        return ScaleAndMin{times(d, low(byte_at(block, j))), times(m, high(byte_at(block, j)))};
      });
    case GgufType::q3_k:
      return several(16, false, [&, d = half_at(block, 108)](int j) {
        return ScaleAndMin{times(d, scale_of_q3_k(block + 96, j)), 0};
      });
    case GgufType::q4_k:
    case GgufType::q5_k:
      return several(8, true, [&, d = half_at(block, 0), m = half_at(block, 2)](int j) {
        const ScaleAndMin sub = six_bits(block + 4, j);
        return ScaleAndMin{d * sub.scale, m * sub.min};
      });
    case GgufType::q6_k:
      return several(16, false, [&, d = half_at(block, 208)](int j) {
        return ScaleAndMin{times(d, signed_at(block + 192, j)), 0};
      });
    case GgufType::iq4_xs:
      return several(8, false, [&, d = half_at(block, 0)](int j) {
        return ScaleAndMin{times(d, scale_of_iq4_xs(block, j)), 0};
      });
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      break;  // they have none
  }
}

void decode_blocks(const WeightFormat& format, const std::byte* bytes, int64_t blocks, float* values) {
  if (format.gguf) return decode_blocks(*format.gguf, bytes, blocks, values);
  for (int64_t i = 0; i < blocks; ++i)
    decode_group(format, bytes + i * format.block_bytes, {0, format.block}, values + i * format.block);
}

void decode_blocks(GgufType type, const std::byte* bytes, int64_t blocks, float* values) {
  const WeightFormat& format = weight_format(type);
  if (format.block == 1)
    return convert_elements(plain_dtype(type), bytes, DType::f32, reinterpret_cast<std::byte*>(values), blocks);
  for (int64_t i = 0; i < blocks; ++i) decode_block(type, bytes + i * format.block_bytes, values + i * format.block);
}

}  // namespace nought
