#include <algorithm>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/dynamic_code.h"

namespace nought::cpu {
namespace {

/// The element of largest magnitude, sign included; the positive one of two.
float signed_largest(const float* x, int64_t count) {
  float least = x[0], most = x[0];
  for (int64_t i = 1; i < count; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  return most >= -least ? most : least;
}

}  // namespace

void run(const Quantize8& op) {
  check(op);
  const DynamicCode& code = DynamicCode::of(op.is_signed);
  const float* x = op.x.data<float>();
  uint8_t* codes = op.codes.data<uint8_t>();
  float* scales = op.scales.data<float>();
  parallel_rows(op.scales.numel(), op.block, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * op.block, end = std::min(op.x.numel(), begin + op.block);
      const float scale = scales[block] = signed_largest(x + begin, end - begin);
      if (scale == 0) {
        std::fill(codes + begin, codes + end, code.zero());
      } else {
        for (int64_t i = begin; i < end; ++i) codes[i] = code.nearest(x[i] / scale);
      }
    }
  });
}

void run(const Dequantize8& op) {
  check(op);
  const float* values = DynamicCode::of(op.is_signed).values().data();
  const uint8_t* codes = op.codes.data<uint8_t>();
  float* x = op.x.data<float>();
  parallel_rows(op.scales.numel(), op.block, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const float scale = op.scales.data<float>()[block];
      const int64_t end = std::min(op.x.numel(), (block + 1) * op.block);
      for (int64_t i = block * op.block; i < end; ++i) x[i] = values[codes[i]] * scale;
    }
  });
}

}  // namespace nought::cpu
