// Copies and sums of heads, and rotary positions.
#include <limits>

#include "nought/cuda/backend/heads.h"
#include "nought/cuda/backend/kernel.h"

namespace nought::cuda {
namespace {

template <class T>
__device__ inline T* head_at(const HeadArray& heads, int64_t token, int64_t head) {
  return heads.array.as<T>() + token * heads.token_stride + head * heads.head_stride;
}

/// Neighbours of a head that are moved at once, and how many such groups a token has.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    copy_heads_kernel(HeadArray from, HeadArray to, HeadRows size, bool accumulate) {
  using Real = accumulator_t<T>;
  const int64_t packs = size.head_dim / kWidth, each = size.num_heads * packs;
  for (int64_t work = thread_of_grid(); work < size.tokens * each; work += threads_of_grid()) {
    const int64_t token = work / each, head = work % each / packs, i = work % packs * kWidth;
    const T* const source = head_at<const T>(from, token, head) + i;
    T* const target = head_at<T>(to, token, head) + i;
    if constexpr (kWidth > 1) {
      Pack<T, kWidth> pack = load<kWidth>(source);
      if (accumulate) {
        const Pack<T, kWidth> before = load<kWidth>(static_cast<const T*>(target));
        for (int k = 0; k < kWidth; ++k) pack.values[k] = static_cast<T>(Real{before.values[k]} + Real{pack.values[k]});
      }
      store(target, pack);
    } else {
      *target = accumulate ? static_cast<T>(Real{*target} + Real{*source}) : *source;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) sum_heads_kernel(HeadArray from, HeadArray to, HeadRows size) {
  using Real = accumulator_t<T>;
  for (int64_t work = thread_of_grid(); work < size.tokens * size.head_dim; work += threads_of_grid()) {
    const int64_t token = work / size.head_dim, i = work % size.head_dim;
    Real sum = 0;
    for (int64_t head = 0; head < size.num_heads; ++head) sum += Real{head_at<const T>(from, token, head)[i]};
    head_at<T>(to, token, 0)[i] = static_cast<T>(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArrays a, HeadRows size) {
  using Real = accumulator_t<T>;
  const int64_t pairs = a.rotary_dim / 2, each = size.num_heads * pairs;
  for (int64_t work = thread_of_grid(); work < size.tokens * each; work += threads_of_grid()) {
    const int64_t token = work / each, head = work % each / pairs, i = work % pairs;
    const int64_t position = a.positions.as<const int32_t>()[token], angle = position * pairs + i;
    const bool is_known = position >= 0 && position < a.positions_known;
    constexpr Real kUnknown = std::numeric_limits<Real>::quiet_NaN();
    const Real cos = is_known ? a.cos.as<const Real>()[angle] : kUnknown;
    const Real sin = is_known ? a.sin.as<const Real>()[angle] : kUnknown, s = a.inverse ? -sin : sin;
    T* const x = head_at<T>(a.x, token, head);
    const int64_t first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : i + pairs;
    const Real p{x[first]}, q{x[second]};
    x[first] = static_cast<T>(p * cos - q * s);
    x[second] = static_cast<T>(q * cos + p * s);
  }
}

/// True if every head begins where packs may, and is whole packs.
template <class T>
bool has_packs(const HeadArray& heads, int64_t head_dim) {
  constexpr int64_t kWidth = kPackOf<T>;
  return are_aligned(heads.array.at) && heads.token_stride % kWidth == 0 && heads.head_stride % kWidth == 0 &&
         head_dim % kWidth == 0;
}

}  // namespace

void copy_heads(const Launch& where, const HeadArray& from, const HeadArray& to, const HeadRows& size,
                bool accumulate) {
  visit_float(to.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kWidth = kPackOf<T>;
    const int64_t elements = size.tokens * size.num_heads * size.head_dim;
    if (has_packs<T>(from, size.head_dim) && has_packs<T>(to, size.head_dim))
      return launch(where, blocks_of_threads_for(elements / kWidth), dim3(kThreads), copy_heads_kernel<T, kWidth>, from,
                    to, size, accumulate);
    launch(where, blocks_of_threads_for(elements), dim3(kThreads), copy_heads_kernel<T, 1>, from, to, size, accumulate);
  });
}

void sum_heads(const Launch& where, const HeadArray& from, const HeadArray& to, const HeadRows& size) {
  visit_float(to.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(where, blocks_of_threads_for(size.tokens * size.head_dim), dim3(kThreads), sum_heads_kernel<T>, from, to,
           size);
  });
}

void rope(const Launch& where, const RopeArrays& a, const HeadRows& size) {
  visit_float(a.x.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(where, blocks_of_threads_for(size.tokens * size.num_heads * a.rotary_dim / 2), dim3(kThreads),
           rope_kernel<T>, a, size);
  });
}

}  // namespace nought::cuda
