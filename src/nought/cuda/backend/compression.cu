// Signs with a scale, and what second moments do to them (kernels/ops/compression.h). All but the scale of OneBitEncode
// has the bits of the CPU: a sum of squares is added in f64 in an order of its own.
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/map.h"
#include "nought/cuda/backend/operations.h"
#include "nought/cuda/limits.h"

namespace nought::cuda {
namespace {

/// error += x; sums[block] = the squares of what error is then.
__global__ void __launch_bounds__(kThreads)
    add_and_square_kernel(const float* x, float* error, double* sums, bool aligned, int64_t n) {
  const int64_t blocks = (n + kSquaresBlock - 1) / kSquaresBlock;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t first = block * kSquaresBlock, count = n - first < kSquaresBlock ? n - first : kSquaresBlock;
    double sum = 0;
    for_each_pack<kPackOf<float>>(count, [&](int64_t begin, auto width) {
      constexpr int kCount = decltype(width)::value;
      const int64_t at = first + begin;
      const Values<float, kCount> added(x + at, aligned), before(error + at, aligned);
      float both[kCount];
      for (int k = 0; k < kCount; ++k) {
        both[k] = before[k] + added[k];
        sum += static_cast<double>(both[k]) * static_cast<double>(both[k]);
      }
      write_values<float, kCount>(error + at, aligned, both);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[block] = sum;
  }
}

/// A lane has an element, so that the votes of a warp are the bits of four bytes.
__global__ void __launch_bounds__(kThreads)
    encode_one_bit_kernel(float* error, const double* squares, uint8_t* bits, float* scale_of_all, int64_t n) {
  const auto scale = static_cast<float>(sqrt(*squares / static_cast<double>(n)));
  if (thread_of_grid() == 0) *scale_of_all = scale;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t pieces = (n + kWarpSize - 1) / kWarpSize, warps = threads_of_grid() / kWarpSize;
  for (int64_t piece = thread_of_grid() / kWarpSize; piece < pieces; piece += warps) {
    const int64_t i = piece * kWarpSize + lane;
    const float u = i < n ? error[i] : -1.0f;  // the bits behind the last are 0
    const uint32_t votes = __ballot_sync(kAllLanes, u >= 0);
    if (i >= n) continue;
    error[i] = u - (u >= 0 ? scale : -scale);
    if (lane % 8 == 0) bits[i / 8] = static_cast<uint8_t>(votes >> lane & 255u);
  }
}

__global__ void __launch_bounds__(kThreads) decode_one_bit_kernel(const uint8_t* bits, const float* scale_of_all,
                                                                  float* y, double factor, bool accumulate, int64_t n) {
  const auto scale = static_cast<float>(factor * static_cast<double>(*scale_of_all));
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) {
    const float value = (bits[i / 8] >> (i % 8) & 1) != 0 ? scale : -scale;
    y[i] = accumulate ? y[i] + value : value;
  }
}

struct Preconditioned {
  float eps;
  bool multiply;
  __device__ float operator()(float x, float second_moment) const {
    const float root = sqrt(second_moment) + eps;
    if (second_moment == 0) return 0;
    return multiply ? x * root : x / root;
  }
};

/// The bits of ratios, which are positive, are ordered as they are. What is no number is left out, as on the reference.
__global__ void __launch_bounds__(kThreads)
    greatest_ratio_kernel(const float* a, const float* b, uint32_t* out, float eps, int64_t n) {
  uint32_t greatest = 0;
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) {
    const float ratio = (sqrt(a[i]) + eps) / (sqrt(b[i]) + eps);
    if (ratio > std::bit_cast<float>(greatest)) greatest = std::bit_cast<uint32_t>(ratio);
  }
  greatest = warp_max(greatest);
  if (threadIdx.x % kWarpSize == 0) atomicMax(out, greatest);
}

}  // namespace

void start(const OneBitEncode& op, Place& at) {
  const int64_t n = op.x.numel(), blocks = (n + kSquaresBlock - 1) / kSquaresBlock;
  const float* const x = op.x.data<float>();
  float* const error = op.error.data<float>();
  auto* const sums = static_cast<double*>(at.room());
  launch(at.launch, blocks, dim3(kThreads), add_and_square_kernel, x, error, sums, are_aligned(x, error), n);
  sum_elements(at.launch, {sums, DType::f64}, sums + blocks, blocks);
  launch(at.launch, blocks_of_threads_for(n), dim3(kThreads), encode_one_bit_kernel, error, sums + blocks,
         op.bits.data<uint8_t>(), op.scale.data<float>(), n);
}

void start(const OneBitDecode& op, Place& at) {
  const int64_t n = op.y.numel();
  launch(at.launch, blocks_of_threads_for(n), dim3(kThreads), decode_one_bit_kernel, op.bits.data<uint8_t>(),
         op.scale.data<float>(), op.y.data<float>(), op.factor, op.accumulate, n);
}

void start(const Precondition& op, Place& at) {
  const float *const x = op.x.data<float>(), *const second = op.second_moment.data<float>();
  map(at.launch, op.x.numel(), Preconditioned{static_cast<float>(op.eps), op.multiply}, op.y.data<float>(), x, second);
}

void start(const GreatestRatio& op, Place& at) {
  constexpr int64_t kEach = 8;  // elements of a thread, or more
  const int64_t n = op.a.numel();
  fill(at.launch, array_of(op.out), 0, 1);
  launch(at.launch, (n + kThreads * kEach - 1) / (kThreads * kEach), dim3(kThreads), greatest_ratio_kernel,
         op.a.data<float>(), op.b.data<float>(), reinterpret_cast<uint32_t*>(op.out.raw()), static_cast<float>(op.eps),
         n);
}

}  // namespace nought::cuda
