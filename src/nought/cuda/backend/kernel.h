// What device code of this folder is written with: launches, packs of 16 bytes, sums of a block, rounding.
//
// Kernels are written once. nvcc compiles them for GPUs; the tests compile the same files for the host, against a
// cuda_runtime.h that runs the threads of a block one after the other and checks what they do. So kernels use no more
// of CUDA than is here, declare shared memory by NOUGHT_SHARED, and index it.
//
// Rules that keep bits equal: no atomics on floating-point numbers; how a sum is cut into parts depends on its shape
// alone, never on the grid or on addresses; nvcc contracts no multiplication with an addition (-fmad=false).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "nought/cuda/backend/launch.h"

#ifndef NOUGHT_SHARED  // the tests' cuda_runtime.h has its own, which check every access
#define NOUGHT_SHARED(T, name, count) __shared__ T name[count]
#define NOUGHT_DYNAMIC_SHARED(T, name)                                     \
  extern __shared__ __align__(1024) unsigned char nought_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(nought_dynamic_shared)
#endif

// Loops over arrays that are to stay in registers, and loops whose loads are to be under way together.
#ifdef __CUDACC__
#define NOUGHT_PRAGMA(text) _Pragma(#text)
#define NOUGHT_UNROLL NOUGHT_PRAGMA(unroll)
#define NOUGHT_UNROLL_BY(count) NOUGHT_PRAGMA(unroll count)
#else
#define NOUGHT_UNROLL
#define NOUGHT_UNROLL_BY(count)
#endif

namespace nought::cuda {

inline constexpr int kWarpSize = 32, kThreads = 256;  // of a block, unless a kernel says otherwise
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
inline constexpr int64_t kVectorBytes = 16;

/// Runs kernel(arguments...) on as many blocks as there are pieces of work, or on max_blocks; none for no work.
template <class... Expected, class... Given>
void launch(const Launch& where, int64_t pieces, dim3 block, void (*kernel)(Expected...), Given... arguments) {
  if (pieces <= 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pieces < where.max_blocks ? pieces : where.max_blocks));
  config.blockDim = block;
  config.stream = where.stream;
  cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(arguments)...);  // cudaGetLastError() has its failure
}

/// How many blocks of kThreads threads have a warp for each of so many pieces.
inline int64_t blocks_for(int64_t warps) { return (warps + kThreads / kWarpSize - 1) / (kThreads / kWarpSize); }

/// How many blocks of kThreads threads have a thread for each of so many elements.
inline int64_t blocks_of_threads_for(int64_t elements) { return (elements + kThreads - 1) / kThreads; }

/// The number of a thread among all of the grid, and how many there are.
__device__ inline int64_t thread_of_grid() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t threads_of_grid() { return int64_t{gridDim.x} * blockDim.x; }

inline constexpr float kLog2E = 1.44269504088896340736F, kLn2 = 0.69314718055994530942F;
/// 2^x, to about two units of fp32's last place.
__device__ inline float power_of_2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// 1 / x, to about one unit of fp32's last place.
__device__ inline float rough_inverse(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}

// --- packs ---

/// Neighbours that are read and written with the widest instructions.
template <class T, int kWidth>
struct alignas(kVectorBytes) Pack {
  T values[kWidth];
};

/// Elements of a pack if the widest of the types fills 16 bytes or more with it, and so the others.
template <class... Ts>
inline constexpr int kPackOf = [] {
  int64_t least = 8;
  for (const int64_t size : {static_cast<int64_t>(sizeof(Ts))...}) least = size < least ? size : least;
  return static_cast<int>(kVectorBytes / least);
}();

template <int kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(__builtin_assume_aligned(from, kVectorBytes));
}
template <int kWidth, class T>
__device__ inline void store(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(__builtin_assume_aligned(to, kVectorBytes)) = pack;
}
/// Loads neighbours, aligned or not.
template <int kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from, bool aligned) {
  if (aligned) return load<kWidth>(from);
  Pack<T, kWidth> pack;
  for (int k = 0; k < kWidth; ++k) pack.values[k] = from[k];
  return pack;
}
template <int kWidth, class T>
__device__ inline void store(T* to, const Pack<T, kWidth>& pack, bool aligned) {
  if (aligned) return store(to, pack);
  for (int k = 0; k < kWidth; ++k) to[k] = pack.values[k];
}

/// True if packs can be loaded from and stored to all of them.
template <class... Ts>
bool are_aligned(const Ts*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) % kVectorBytes == 0) && ...);
}

// --- sums ---

template <class T>
__device__ inline T warp_sum(T value) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

/// The largest value of the lanes of a warp, in all of them.
template <class T>
__device__ inline T warp_max(T value) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}

/// The sum over a block of kThreads threads, in every thread: warps by halves, then in the order of warps.
template <class T>
__device__ inline T block_sum(T value) {
  NOUGHT_SHARED(T, parts, kThreads / kWarpSize);
  value = warp_sum(value);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum = parts[0];
  for (int warp = 1; warp < kThreads / kWarpSize; ++warp) sum += parts[warp];
  return sum;
}

/// The threads that share a row: those of a block, or of a warp. A thread says its number, how many they are, and what
/// their sum is.
struct BlockTeam {
  static constexpr int kSize = kThreads;
  __device__ static int number() { return static_cast<int>(threadIdx.x); }
  template <class T>
  __device__ static T sum(T value) {
    return block_sum(value);
  }
};
struct WarpTeam {
  static constexpr int kSize = kWarpSize;
  __device__ static int number() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  template <class T>
  __device__ static T sum(T value) {
    return warp_sum(value);
  }
};

/// Calls f(begin, count) for the packs of [0, n) that the thread has of those of its team: t, t + kSize, ...; then for
/// what is left over, one by one. count is a std::integral_constant. Whatever the addresses are, a thread has the same
/// elements in the same order.
template <int kWidth, class Team = BlockTeam, class F>
__device__ inline void for_each_pack(int64_t n, const F& f) {
  constexpr int kStep = Team::kSize * kWidth;
  for (int64_t begin = int64_t{Team::number()} * kWidth; begin + kWidth <= n; begin += kStep)
    f(begin, std::integral_constant<int, kWidth>());
  for (int64_t i = n / kWidth * kWidth + Team::number(); i < n; i += Team::kSize)
    f(i, std::integral_constant<int, 1>());
}

/// kCount neighbours in the type of sums.
template <class T, int kCount>
struct Values {
  using Real = accumulator_t<T>;
  Real values[kCount];
  __device__ Values(const T* from, bool aligned) {
    if constexpr (kCount > 1) {
      const Pack<T, kCount> pack = load<kCount>(from, aligned);
      for (int k = 0; k < kCount; ++k) values[k] = Real{pack.values[k]};
    } else {
      values[0] = Real{*from};
    }
  }
  __device__ explicit Values(const Pack<T, kCount>& pack) {
    for (int k = 0; k < kCount; ++k) values[k] = Real{pack.values[k]};
  }
  __device__ Real operator[](int k) const { return values[k]; }
};

/// The sum of f(i, x[i]) over [0, n), in every thread of the team.
template <class Sum, class Team = BlockTeam, class T, class F>
__device__ inline Sum sum_over(const T* x, int64_t n, bool aligned, const F& f) {
  Sum sum = 0;
  for_each_pack<kPackOf<T>, Team>(n, [&](int64_t begin, auto count) {
    constexpr int kCount = decltype(count)::value;
    const Values<T, kCount> values(x + begin, aligned);
    for (int k = 0; k < kCount; ++k) sum += f(begin + k, values[k]);
  });
  return Team::sum(sum);
}

}  // namespace nought::cuda
