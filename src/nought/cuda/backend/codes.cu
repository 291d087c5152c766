// Tensors in 8 bits: dynamic codes of optimizer states, blocks of codes, and E4M3 with scales of powers of two.
#include "nought/cuda/backend/four_bits.h"
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/map.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/dynamic_code.h"
#include "nought/kernels/rounding.h"

namespace nought::cuda {
namespace {

/// A map of kernels/dynamic_code.h, which travels with the launch: its values, or where the next one is nearer.
struct CodeTable {
  float at[256];
};
CodeTable values_of(const DynamicCode& code) {
  CodeTable table;
  for (size_t i = 0; i < 256; ++i) table.at[i] = code.values()[i];
  return table;
}
CodeTable bounds_of(const DynamicCode& code) {
  CodeTable table;
  for (size_t i = 0; i < 255; ++i)
    table.at[i] = static_cast<float>((double{code.values()[i]} + double{code.values()[i + 1]}) / 2);
  table.at[255] = INFINITY;
  return table;
}

/// DynamicCode::nearest(): the first code whose bound is above x. No bound is above NaN.
template <class Bounds>
__device__ uint8_t nearest_code(Bounds bounds, float x, bool is_signed) {
  int first = 0, count = 255;
  while (count > 0) {
    const int half = count / 2;
    if (x < bounds[first + half]) {
      count = half;
    } else {
      first += half + 1;
      count -= half + 1;
    }
  }
  return static_cast<uint8_t>(!is_signed && first == 0 && x > 0 ? 1 : first);
}

/// A block of threads has a block of codes.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const float* x, uint8_t* codes, float* scales, int64_t n, int64_t block, CodeTable table,
                    uint8_t zero, bool is_signed) {
  NOUGHT_SHARED(float, bounds, 256);
  NOUGHT_SHARED(float, least_of, kThreads / kWarpSize);
  NOUGHT_SHARED(float, most_of, kThreads / kWarpSize);
  bounds[threadIdx.x] = table.at[threadIdx.x];
  const int64_t blocks = (n + block - 1) / block;
  for (int64_t number = blockIdx.x; number < blocks; number += gridDim.x) {
    const int64_t begin = number * block, end = begin + block < n ? begin + block : n;
    float least = x[begin], most = least;  // NaN stays if it comes first
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      const float low = __shfl_xor_sync(kAllLanes, least, lanes), high = __shfl_xor_sync(kAllLanes, most, lanes);
      least = low < least ? low : least;
      most = high > most ? high : most;
    }
    __syncthreads();  // those of the block before have been read
    if (threadIdx.x % kWarpSize == 0) {
      least_of[threadIdx.x / kWarpSize] = least;
      most_of[threadIdx.x / kWarpSize] = most;
    }
    __syncthreads();
    for (int warp = 0; warp < kThreads / kWarpSize; ++warp) {
      const float low = least_of[warp], high = most_of[warp];
      least = low < least ? low : least;
      most = high > most ? high : most;
    }
    const float scale = most >= -least ? most : least;
    if (threadIdx.x == 0) scales[number] = scale;
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads)
      codes[i] = scale == 0 ? zero : nearest_code(bounds, x[i] / scale, is_signed);
  }
}

__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const uint8_t* codes, const float* scales, float* x, int64_t n, int64_t block, CodeTable table) {
  NOUGHT_SHARED(float, values, 256);
  values[threadIdx.x] = table.at[threadIdx.x];
  __syncthreads();
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) x[i] = values[codes[i]] * scales[i / block];
}

/// codes_for() of kernels/rounding.h for one value of a block. Returns its error.
template <class Real>
__device__ Real code_for(Real value, Real scale, int8_t& code) {
  Real whole = round(value / scale);
  whole = whole < -127 ? Real{-127} : whole > 127 ? Real{127} : whole;
  code = static_cast<int8_t>(whole);
  return fabs(value - whole * scale);
}

/// quantize_block() of kernels/rounding.h, a warp for each block and a lane for each value.
template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(const T* x, int8_t* codes, f16_t* scales, int64_t blocks) {
  using Real = accumulator_t<T>;
  static_assert(kCodeBlock == kWarpSize);
  const int64_t warps = threads_of_grid() / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t block = thread_of_grid() / kWarpSize; block < blocks; block += warps) {
    const Real value{x[block * kCodeBlock + lane]};
    const bool is_finite = __all_sync(kAllLanes, isfinite(value)) != 0;
    const Real largest = warp_max(fabs(value));
    int8_t code = 0;
    f16_t scale{};
    if (!is_finite || largest > Real{127} * Real{kLargestScale}) {
      scale = f16_t(nanf(""));
    } else if (largest != 0) {
      scale = f16_t(static_cast<float>(largest / 127));
      if (float{scale} >= kLeastNormalScale) {
        code_for(value, static_cast<Real>(float{scale}), code);
      } else {
        const float nearest = float{scale}, least = nearest < kScaleStep ? kScaleStep : nearest;
        const float next = least + kScaleStep;
        int8_t other = 0;
        code_for(value, static_cast<Real>(least), code);
        const bool next_is_exact = warp_max(code_for(value, static_cast<Real>(next), other)) == 0;
        scale = f16_t(least);
        if (largest > Real{127.5} * static_cast<Real>(least) || next_is_exact) {
          code = other;
          scale = f16_t(next);
        }
      }
    }
    codes[block * kCodeBlock + lane] = code;
    if (lane == 0) scales[block] = scale;
  }
}

template <class T>
struct Decoded {
  using Real = accumulator_t<T>;
  const int8_t* codes;
  const f16_t* scales;
  T* x;
  __device__ void operator()(int64_t i) const {
    x[i] = static_cast<T>(static_cast<Real>(codes[i]) * static_cast<Real>(float{scales[i / kCodeBlock]}));
  }
};

template <class T>
struct DecodedFourBits {
  const uint8_t* codes;
  const float* scales;
  T* x;
  FourBitTable table;
  __device__ void operator()(int64_t i) const { x[i] = static_cast<T>(table.value(codes, scales, i)); }
};

CodeTable nested_table() {
  CodeTable table;
  for (size_t i = 0; i < 256; ++i) table.at[i] = nested_values()[i];
  return table;
}

__global__ void __launch_bounds__(kThreads)
    decode_scales_kernel(const uint8_t* codes, const float* nested, float* scales, int64_t n, CodeTable table) {
  NOUGHT_SHARED(float, values, 256);
  values[threadIdx.x] = table.at[threadIdx.x];
  __syncthreads();
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid())
    scales[i] = values[codes[i]] * nested[1 + i / kNestedBlock] + nested[0];
}

/// encode_mx() of kernels/rounding.h, a warp for each block. `most` is the largest finite number of T.
template <class T>
__global__ void __launch_bounds__(kThreads)
    encode_mx_kernel(const T* x, uint8_t* codes, uint8_t* scales, int64_t n, double most) {
  static_assert(kMxBlock == kWarpSize);
  const int64_t blocks = (n + kMxBlock - 1) / kMxBlock, warps = threads_of_grid() / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t block = thread_of_grid() / kWarpSize; block < blocks; block += warps) {
    const int64_t i = block * kMxBlock + lane;
    const float value = i < n ? static_cast<float>(x[i]) : 0;
    uint32_t largest = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;  // ordered as magnitudes are
    largest = warp_max(largest);
    uint8_t code = 0, scale = kMxNaN;
    if (largest < 0x7F800000u) {
      int exponent = static_cast<int>(largest >> 23) - 127 - 8;
      exponent = exponent < -126 ? -126 : exponent;
      if (std::bit_cast<float>(largest) * power_of_two(-exponent) > 448.0f) ++exponent;
      code = e4m3_code(value * power_of_two(-exponent));
      uint8_t last = 0x7E;  // the largest code that T can hold
      while (ldexp(static_cast<double>(e4m3_value(last)), exponent) > most) --last;
      if ((code & 127) > last) code = static_cast<uint8_t>((code & 128) | last);
      scale = static_cast<uint8_t>(exponent + 127);
    }
    if (i < n) codes[i] = code;
    if (lane == 0) scales[block] = scale;
  }
}

template <class T>
struct DecodedMx {
  const uint8_t *codes, *scales;
  T* x;
  __device__ void operator()(int64_t i) const {
    const uint8_t scale = scales[i / kMxBlock];
    const double value = static_cast<double>(e4m3_value(codes[i]));
    x[i] = rounded<T>(scale == kMxNaN ? static_cast<double>(nanf("")) : ldexp(value, scale - 127));
  }
};

}  // namespace

void start(const Quantize8& op, Place& at) {
  const DynamicCode& code = DynamicCode::of(op.is_signed);
  launch(at.launch, op.scales.numel(), dim3(kThreads), quantize_kernel, op.x.data<float>(), op.codes.data<uint8_t>(),
         op.scales.data<float>(), op.x.numel(), op.block, bounds_of(code), code.zero(), op.is_signed);
}

void start(const Dequantize8& op, Place& at) {
  launch(at.launch, blocks_of_threads_for(op.x.numel()), dim3(kThreads), dequantize_kernel, op.codes.data<uint8_t>(),
         op.scales.data<float>(), op.x.data<float>(), op.x.numel(), op.block, values_of(DynamicCode::of(op.is_signed)));
}

void start(const QuantizeBlocks& op, Place& at) {
  const int64_t blocks = op.scales.numel();
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(at.launch, blocks_for(blocks), dim3(kThreads), quantize_blocks_kernel<T>, op.x.data<T>(),
           op.codes.data<int8_t>(), op.scales.data<f16_t>(), blocks);
  });
}

void start(const DequantizeBlocks& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op.weight.is_four_bits())
      return for_each(at.launch, op.x.numel(),
                      DecodedFourBits<T>{op.weight.values.data<uint8_t>(), op.weight.scales.data<float>(),
                                         op.x.data<T>(), FourBitTable(op.weight.kind())});
    for_each(at.launch, op.x.numel(),
             Decoded<T>{op.weight.values.data<int8_t>(), op.weight.scales.data<f16_t>(), op.x.data<T>()});
  });
}

void start(const DecodeScales& op, Place& at) {
  const int64_t n = op.scales.numel();
  launch(at.launch, blocks_of_threads_for(n), dim3(kThreads), decode_scales_kernel, op.codes.data<uint8_t>(),
         op.nested.data<float>(), op.scales.data<float>(), n, nested_table());
}

void start(const EncodeMxfp8& op, Place& at) {
  const int64_t n = op.x.numel(), blocks = op.scales.numel();
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double most = std::is_same_v<T, f16_t>    ? 65504.0
                        : std::is_same_v<T, bf16_t> ? 0x1.FEp127
                                                    : static_cast<double>(std::numeric_limits<float>::max());
    launch(at.launch, blocks_for(blocks), dim3(kThreads), encode_mx_kernel<T>, op.x.data<T>(), op.codes.data<uint8_t>(),
           op.scales.data<uint8_t>(), n, most);
  });
}

void start(const DecodeMxfp8& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each(at.launch, op.x.numel(),
             DecodedMx<T>{op.codes.data<uint8_t>(), op.scales.data<uint8_t>(), op.x.data<T>()});
  });
}

}  // namespace nought::cuda
