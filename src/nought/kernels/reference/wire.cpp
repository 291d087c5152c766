#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"
#include "nought/kernels/wire_records.h"

namespace nought::reference {
namespace {

int code_at(const std::byte* codes, int64_t i, int64_t count, int bits) {
  if (bits == 8) return static_cast<int8_t>(codes[i]);
  const bool upper = i >= count / 2;
  const int both = static_cast<int>(codes[upper ? i - count / 2 : i]);
  const int nibble = upper ? both >> 4 : both & 15;
  return nibble >= 8 ? nibble - 16 : nibble;
}

void set_code(std::byte* codes, int64_t i, int64_t count, int bits, int code) {
  if (bits == 8) {
    codes[i] = static_cast<std::byte>(code);
  } else if (i < count / 2) {  // the upper half of the byte comes later
    codes[i] = static_cast<std::byte>(code & 15);
  } else {
    codes[i - count / 2] |= static_cast<std::byte>(code << 4 & 0xF0);
  }
}

/// What a record says of element i of a block.
float value_at(const std::byte* codes, float scale, int64_t i, int64_t count, int bits) {
  if (bits == 32) return reinterpret_cast<const float*>(codes)[i];
  if (bits == 16) return reinterpret_cast<const bf16_t*>(codes)[i];
  return static_cast<float>(code_at(codes, i, count, bits)) * scale;
}

/// Codes of h, a block.
void encode(const float* h, int64_t count, int bits, std::byte* codes, float* scale_of_block) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(h[i]) & 0x7FFFFFFFu);
  const float factor = wire_factor(largest, bits), limit = static_cast<float>(1 << (bits - 1));
  *scale_of_block = wire_scale(largest, bits);
  for (int64_t i = 0; i < count; ++i) {
    const float code = std::isnan(factor) ? 0 : std::clamp(std::nearbyint(h[i] * factor), -limit, limit - 1);
    set_code(codes, i, count, bits, static_cast<int>(code));
  }
}

void write_values(const float* h, int64_t count, int bits, std::byte* codes) {
  for (int64_t i = 0; i < count; ++i) {
    if (bits == 32) {
      reinterpret_cast<float*>(codes)[i] = h[i];
    } else {
      reinterpret_cast<bf16_t*>(codes)[i] = bf16_t(h[i]);
    }
  }
}

}  // namespace

void run(const EncodeWire& op) {
  check(op);
  const WireBlocks blocks = blocks_of(op);
  const int64_t bytes = wire_record_bytes(blocks.numel, op.bits);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const WireBlock block = blocks[b];
      const int64_t first = block.part * blocks.numel + block.begin;
      std::byte* record = op.records.raw() + record_of(op, block.part) * bytes;
      std::byte* codes = codes_in(record, block, op.bits);
      T* error = op.error ? op.error.data<T>() + first : nullptr;
      float h[kWireBlock], scale = 1;
      for (int64_t i = 0; i < block.count; ++i) {
        h[i] = static_cast<float>(op.x.data<T>()[first + i]);
        if (error) h[i] += static_cast<float>(error[i]);
      }
      if (has_wire_scales(op.bits)) {
        encode(h, block.count, op.bits, codes, &scale);
        std::memcpy(scale_in(record, block, blocks.numel, op.bits), &scale, sizeof scale);
      } else {
        write_values(h, block.count, op.bits, codes);
      }
      const auto beta = static_cast<float>(op.beta);
      for (int64_t i = 0; error && !std::isnan(scale) && i < block.count; ++i) {
        const float lost = h[i] - value_at(codes, scale, i, block.count, op.bits);
        error[i] = static_cast<T>(beta * static_cast<float>(error[i]) + (1 - beta) * lost);
      }
    }
  });
}

void run(const DecodeWire& op) {
  check(op);
  const WireBlocks blocks = blocks_of(op);
  const int64_t bytes = wire_record_bytes(blocks.numel, op.bits);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const WireBlock block = blocks[b];
      for (int64_t i = 0; i < block.count; ++i) {
        float sum = 0;
        for (int64_t term = 0; term < op.terms; ++term) {
          std::byte* record = op.records.raw() + (term * op.parts + block.part) * bytes;
          float scale = 1;
          if (has_wire_scales(op.bits))
            std::memcpy(&scale, scale_in(record, block, blocks.numel, op.bits), sizeof scale);
          const float value = value_at(codes_in(record, block, op.bits), scale, i, block.count, op.bits);
          sum = term == 0 ? value : sum + value;
        }
        op.y.data<T>()[block.part * blocks.numel + block.begin + i] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace nought::reference
