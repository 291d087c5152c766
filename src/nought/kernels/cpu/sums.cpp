#include <bit>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/partials.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/sums.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// sums[j] = the sum of x[i, j] over `rows`. Four rows at a time: the sums are read and written a quarter as often.
void sum_chunk(const Tensor& x_tensor, Interval rows, float* sums) {
  visit(x_tensor.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = x_tensor.dim(-1);
    const T* x = x_tensor.data<T>();
    std::fill(sums, sums + n, 0.0f);
    int64_t row = rows.begin;
    for (; row + 4 <= rows.end; row += 4) {
      const T* x0 = x + row * n;
      sweep_all<T>(d, 0, n, [=](int64_t j, auto access) HWY_ATTR {
        const auto first = hn::Add(access.load(d, x0 + j), access.load(d, x0 + n + j));
        const auto second = hn::Add(access.load(d, x0 + 2 * n + j), access.load(d, x0 + 3 * n + j));
        access.store_sums(d, hn::Add(access.load_sums(d, sums + j), hn::Add(first, second)), sums + j);
      });
    }
    for (; row < rows.end; ++row) {
      const T* x0 = x + row * n;
      sweep_all<T>(d, 0, n, [=](int64_t j, auto access) HWY_ATTR {
        access.store_sums(d, hn::Add(access.load_sums(d, sums + j), access.load(d, x0 + j)), sums + j);
      });
    }
    order_sums<T>(d, n, sums);
  });
}

/// out[j] [+]= partials[0][j] + partials[1][j] + ... for j in `columns`. partials: [count, n].
void combine_columns(const float* partials, int64_t count, const Tensor& out_tensor, bool accumulate,
                     Interval columns) {
  visit(out_tensor.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = out_tensor.numel();
    T* out = out_tensor.data<T>();
    sweep(d, columns.begin, columns.end, [=](int64_t j, auto access) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (int64_t i = 0; i < count; ++i) sum = hn::Add(sum, access.load(d, partials + i * n + j));
      if (accumulate) sum = hn::Add(access.load(d, out + j), sum);
      access.store(d, sum, out + j);
    });
  });
}

/// The sum of so many inputs at i, in a binary tree.
template <class T, class Access>
hn::Vec<F32> pairwise_sum(const T* const* inputs, size_t count, int64_t i, Access access) {
  const F32 d;
  if (count == 1) return access.load(d, inputs[0] + i);
  const size_t left = std::bit_floor(count - 1);
  return hn::Add(pairwise_sum(inputs, left, i, access), pairwise_sum(inputs + left, count - left, i, access));
}

void sum_tensors(const SumTensors& op) {
  visit(op.out.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    std::vector<const T*> inputs;
    for (const Tensor& input : op.inputs) inputs.push_back(input.data<T>());
    const T* const* first = inputs.data();
    T* out = op.out.data<T>();
    if (inputs.size() == 2)
      return sweep(d, 0, op.out.numel(), [=, a = inputs[0], b = inputs[1]](int64_t i, auto access) HWY_ATTR {
        access.store(d, hn::Add(access.load(d, a + i), access.load(d, b + i)), out + i);
      });
    if (op.pairwise)
      return sweep(d, 0, op.out.numel(), [=, count = inputs.size()](int64_t i, auto access) HWY_ATTR {
        access.store(d, pairwise_sum(first, count, i, access), out + i);
      });
    sweep(d, 0, op.out.numel(), [=, count = inputs.size()](int64_t i, auto access) HWY_ATTR {
      auto sum = access.load(d, first[0] + i);
      for (size_t k = 1; k < count; ++k) sum = hn::Add(sum, access.load(d, first[k] + i));
      access.store(d, sum, out + i);
    });
  });
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// Adds the squares of the elements of whole pairs of vectors, and returns where the rest begins.
template <class D64>
HWY_INLINE int64_t add_squares(D64 d64, const bf16_t* x, Interval range, Four<hn::Vec<D64>>& sums) {
  const F32 d;
  const hn::Half<F32> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kAhead = 1024;  // one stream of loads: the CPU alone asks for too few lines of it in advance
  int64_t i = range.begin;
  const auto add_square = [=](auto x32, auto& sum) HWY_ATTR {
    const auto wide = hn::PromoteTo(d64, x32);
    sum = hn::MulAdd(wide, wide, sum);
  };
  for (; i + 2 * lanes <= range.end; i += 2 * lanes) {
    hwy::Prefetch(x + i + kAhead);
    const auto even = load_even(d, x + i), odd = load_odd(d, x + i);
    add_square(hn::LowerHalf(half, even), sums.part0);
    add_square(hn::UpperHalf(half, even), sums.part1);
    add_square(hn::LowerHalf(half, odd), sums.part2);
    add_square(hn::UpperHalf(half, odd), sums.part3);
  }
  return i;
}

#endif

/// The sum of x[i]^2 over the interval, in f64: a square of fp32 may overflow fp32.
double sum_squares(const Tensor& x_tensor, Interval range) {
  double sum = 0;
  visit(x_tensor.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const hn::ScalableTag<double> d64;
    const hn::Rebind<float, decltype(d64)> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* x = x_tensor.data<T>();
    const auto zero = hn::Zero(d64);
    Four<hn::Vec<decltype(d64)>> sums{zero, zero, zero, zero};
    int64_t i = range.begin;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (kAlternates<T>) i = add_squares(d64, x, range, sums);
#endif
    const auto add_square = [=](int64_t at, auto& part) HWY_ATTR {
      const auto wide = hn::PromoteTo(d64, load(d, x + at));
      part = hn::MulAdd(wide, wide, part);
    };
    for (; i + 4 * lanes <= range.end; i += 4 * lanes) {
      hwy::Prefetch(x + i + 512);
      add_square(i, sums.part0), add_square(i + lanes, sums.part1);
      add_square(i + 2 * lanes, sums.part2), add_square(i + 3 * lanes, sums.part3);
    }
    for (; i + lanes <= range.end; i += lanes) add_square(i, sums.part0);
    sum = hn::GetLane(hn::SumOfLanes(d64, hn::Add(hn::Add(sums.part0, sums.part1), hn::Add(sums.part2, sums.part3))));
    for (; i < range.end; ++i) sum += static_cast<double>(float{x[i]}) * static_cast<double>(float{x[i]});
  });
  return sum;
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(sum_chunk);
HWY_EXPORT(combine_columns);
HWY_EXPORT(sum_tensors);
HWY_EXPORT(sum_squares);

void Partials::combine(const Tensor& out, bool accumulate) const {
  parallel_for(n_, chunks_.count, 64, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(combine_columns)(row(0), chunks_.count, out, accumulate, {begin, end});
  });
}

void run(const SumRows& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t n = op.x.dim(-1);
  const Partials partials(op.x.rows(), n);
  parallel_rows(partials.chunks().count, partials.chunks().chunk * n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(sum_chunk)(op.x, partials.chunks()[i], partials.row(i));
    }
  });
  partials.combine(op.out, op.accumulate);
}

void run(const SumTensors& op) {
  if (op.out.dtype() == DType::f64 || !is_float(op.out.dtype())) return reference::run(op);
  check(op);
  HWY_DYNAMIC_DISPATCH(sum_tensors)(op);
}

void run(const SumElements& op) { reference::run(op); }  // in order: nothing to split

void run(const SumSquares& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  constexpr int64_t kBlock = 65536;
  const int64_t n = op.x.numel(), blocks = ceil_div(n, kBlock);
  std::vector<double> sums(static_cast<size_t>(blocks));
  parallel_rows(blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Interval block{i * kBlock, std::min(n, (i + 1) * kBlock)};
      sums[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(sum_squares)(op.x, block);
    }
  });
  double total = 0;
  for (double sum : sums) total += sum;
  *op.out.data<double>() = total;
}

}  // namespace nought::cpu
#endif
