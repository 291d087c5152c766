#include <limits>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/grids.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// What values reach.
struct Reach {
  float least, greatest;
  bool finite;
};

template <class T>
HWY_INLINE Reach reach_of(const T* x, int64_t count) {
  const F32 d;
  const float first = static_cast<float>(*x);  // lanes that are not there count as another of it
  auto least = hn::Set(d, first), greatest = least, gone = hn::Zero(d);
  const auto body = [&](int64_t i, auto access) HWY_ATTR {
    const auto value = access.load(d, x + i, first);
    least = hn::Min(least, value), greatest = hn::Max(greatest, value);
    gone = hn::Add(gone, hn::Sub(value, value));  // 0, or NaN from the first value on that is not finite
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Whole{});
  if (i < count) body(i, Partial{static_cast<size_t>(count - i)});
  return {hn::GetLane(hn::MinOfLanes(d, least)), hn::GetLane(hn::MaxOfLanes(d, greatest)),
          hn::AllTrue(d, hn::Eq(gone, hn::Zero(d)))};
}

/// y = the multiples of the scale that are nearest to x. Adding 0 makes -0 what a code stands for.
template <class T>
HWY_INLINE void round_to_steps(float scale, float zero, float first, float last, const T* x, T* y, int64_t count) {
  const F32 d;
  const auto step = hn::Set(d, scale), offset = hn::Set(d, zero), low = hn::Set(d, first), high = hn::Set(d, last);
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
    const auto code = hn::Round(hn::Div(hn::Sub(access.load(d, x + i), offset), step));
    const auto kept = hn::Add(hn::Min(hn::Max(code, low), high), hn::Zero(d));
    access.store(d, hn::Add(hn::Mul(kept, step), offset), y + i);
  });
}

/// y = the values of E4M3 times the scale that are nearest to x: see round_fp8().
template <class T>
HWY_INLINE void round_to_e4m3(float scale, const T* x, T* y, int64_t count) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto step = hn::Set(d, scale), largest = hn::Set(d, 448.0f);
  const auto least = hn::Set(di, (127 - 6) << 23), to_steps = hn::Set(di, (23 - 3) << 23);
  const auto exponent_bits = hn::Set(di, 0x7F800000);
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
    const auto loaded = access.load(d, x + i), bounded = hn::Min(hn::Abs(hn::Div(loaded, step)), largest);
    const auto exponent = hn::Max(hn::And(hn::BitCast(di, bounded), exponent_bits), least);
    const auto steps = hn::BitCast(d, hn::Add(exponent, to_steps));
    const auto rounded = hn::Sub(hn::Add(bounded, steps), steps);
    access.store(d, hn::CopySign(hn::Mul(rounded, step), loaded), y + i);
  });
}

template <class T>
HWY_INLINE void fill_with_nan(T* y, int64_t count) {
  const F32 d;
  const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR { access.store(d, nan, y + i); });
}

/// Groups of one column interval, in rows [begin, end), which share a grid.
template <class T>
HWY_INLINE void round_group(const RoundToGrid& op, Interval rows, Interval columns) {
  const int64_t width = op.x.dim(1), count = columns.size();
  const T* x = op.x.data<T>() + columns.begin;
  T* y = op.y.data<T>() + columns.begin;
  Reach all = reach_of(x + rows.begin * width, count);
  for (int64_t row = rows.begin + 1; row < rows.end; ++row) {
    const Reach each = reach_of(x + row * width, count);
    all.least = std::min(all.least, each.least), all.greatest = std::max(all.greatest, each.greatest);
    all.finite = all.finite && each.finite;
  }
  const RoundingGrid grid = all.finite ? grid_of_range(all.least, all.greatest, op.rule()) : RoundingGrid{};
  const auto middle = static_cast<float>(grid.zero), last = static_cast<float>(grid.last);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * width;
    T* into = y + row * width;
    if (!all.finite)
      fill_with_nan(into, count);
    else if (op.codes == CodeTable::e4m3)
      round_to_e4m3(grid.scale, from, into, count);
    else
      round_to_steps(grid.scale, 0, -middle, last - middle, from, into, count);
  }
}

/// Rows from begin to end, whole squares of them.
void round_to_grid(const RoundToGrid& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t tall = op.square ? op.group_size : 1, width = op.x.dim(1);
    for (int64_t row = begin; row < end; row += tall)
      for (int64_t column = 0; column < width; column += op.group_size)
        round_group<T>(op, {row, std::min(row + tall, end)}, {column, std::min(column + op.group_size, width)});
  });
}

void row_ranges(const RowRanges& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t width = op.x.dim(-1);
    for (int64_t row = begin; row < end; ++row) {
      const Reach reach = reach_of(op.x.data<T>() + row * width, width);
      float* range = op.ranges.data<float>() + 2 * row;
      range[0] = reach.finite ? -reach.least : std::numeric_limits<float>::infinity();
      range[1] = reach.finite ? reach.greatest : std::numeric_limits<float>::infinity();
    }
  });
}

void round_rows(const RoundRows& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t width = op.x.dim(-1);
    for (int64_t row = begin; row < end; ++row) {
      const float* range = op.ranges.data<float>() + 2 * row;
      const T* x = op.x.data<T>() + row * width;
      T* y = op.y.data<T>() + row * width;
      constexpr float kMost = std::numeric_limits<float>::max();
      if (!(range[0] <= kMost && range[1] <= kMost)) {
        fill_with_nan(y, width);
        continue;
      }
      const RowSteps steps(op.grid, op.bits, -range[0], range[1]);
      if (steps.scale == 0)
        std::copy(x, x + width, y);
      else if (op.grid == RowGrid::e4m3)
        round_to_e4m3(steps.scale, x, y, width);
      else
        round_to_steps(steps.scale, steps.zero, steps.first, steps.last, x, y, width);
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(round_to_grid);
HWY_EXPORT(row_ranges);
HWY_EXPORT(round_rows);

void run(const RoundToGrid& op) {
  check(op);
  const int64_t rows = op.x.dim(0), tall = op.square ? op.group_size : 1;
  const bool plain = op.codes == CodeTable::e2m1 || op.x.dtype() == DType::f64;  // e2m1 tries two scales
  parallel_rows(ceil_div(rows, tall), tall * op.x.dim(1), [&](int64_t begin, int64_t end) {
    begin *= tall, end = std::min(end * tall, rows);
    if (!plain) return HWY_DYNAMIC_DISPATCH(round_to_grid)(op, begin, end);
    RoundToGrid part = op;
    part.x = op.x.slice(begin, end), part.y = op.y.slice(begin, end);
    reference::run(part);
  });
}

void run(const RowRanges& op) {
  check(op);
  if (op.x.dtype() == DType::f64 || op.x.numel() == 0) return reference::run(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(row_ranges)(op, begin, end);
  });
}

void run(const RoundRows& op) {
  check(op);
  if (op.x.dtype() == DType::f64) return reference::run(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(round_rows)(op, begin, end);
  });
}

void run(const KeepMasked& op) {
  check(op);
  const auto* bits = op.bits.data<uint8_t>();
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    parallel_elements(op.x.numel(), [=, first = op.first](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = (bits[(first + i) / 8] >> ((first + i) % 8) & 1) != 0 ? x[i] : T();
    });
  });
}

}  // namespace nought::cpu
#endif
