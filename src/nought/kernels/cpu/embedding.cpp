#include "nought/kernels/check.h"
#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/cpu/tokens_by_id.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void add_rows(const Embedding& op, Interval tokens) {
  visit(op.table.values.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.table.dim(-1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const T* row = op.table.values.data<T>() + op.ids.data<int32_t>()[t] * n;
      T* out = op.out.data<T>() + t * n;
      sweep(d, 0, n, [=](int64_t j, auto access) HWY_ATTR {
        access.store(d, hn::Add(access.load(d, out + j), access.load(d, row + j)), out + j);
      });
    }
  });
}

/// The gradient of one table row in columns [begin, end), which fit the accumulator.
template <class T, class G>
HWY_INLINE void scatter_row(const EmbeddingBackward& op, const TokensById& tokens, size_t id, Interval columns) {
  const F32 d;
  const int64_t n = op.d_out.dim(-1);
  const int32_t first = tokens.start[id], last = tokens.start[id + 1];
  G* d_row = op.d_table.data<G>() + static_cast<int64_t>(id) * n;
  if (first == last) {
    if (!op.accumulate) std::fill(d_row + columns.begin, d_row + columns.end, G{});
    return;
  }
  sweep(d, columns.begin, columns.end, [&](int64_t j, auto access) HWY_ATTR {
    auto sum = op.accumulate ? access.load(d, d_row + j) : hn::Zero(d);
    for (int32_t i = first; i < last; ++i) {
      const T* d_out = op.d_out.data<T>() + tokens.order[static_cast<size_t>(i)] * n;
      sum = hn::Add(sum, access.load(d, d_out + j));
    }
    access.store(d, sum, d_row + j);
  });
}

void scatter_columns(const EmbeddingBackward& op, const TokensById& tokens, Interval columns) {
  visit(op.d_out.dtype(), [&](auto out_tag) HWY_ATTR {
    visit(op.d_table.dtype(), [&](auto table_tag) HWY_ATTR {
      using T = typename decltype(out_tag)::type;
      using G = typename decltype(table_tag)::type;
      if constexpr (std::is_same_v<T, G> || std::is_same_v<G, float>) {
        for (size_t id = 0; id + 1 < tokens.start.size(); ++id) scatter_row<T, G>(op, tokens, id, columns);
      }
    });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(add_rows);
HWY_EXPORT(scatter_columns);

namespace {

void look_up_codes(const Embedding& op, int64_t n) {
  parallel_rows(op.ids.numel(), n, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      decode(op.table, op.ids.data<int32_t>()[t] * n, n, op.out.dtype(), op.out.raw() + t * n * size_of(op.out.dtype()),
             op.accumulate);
  });
}

}  // namespace

void run(const Embedding& op) {
  if (op.out.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t n = op.table.dim(-1);
  if (op.table.is_quantized()) return look_up_codes(op, n);
  parallel_rows(op.ids.numel(), n, [&](int64_t begin, int64_t end) {
    if (op.accumulate) {
      HWY_DYNAMIC_DISPATCH(add_rows)(op, {begin, end});
      return;
    }
    const int64_t row_bytes = n * size_of(op.out.dtype());
    for (int64_t t = begin; t < end; ++t) {
      std::memcpy(op.out.raw() + t * row_bytes, op.table.values.raw() + op.ids.data<int32_t>()[t] * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
}

void run(const EmbeddingBackward& op) {
  if (op.d_out.dtype() == DType::f64) return reference::run(op);
  check(op);
  const TokensById tokens(op.ids, op.d_table.rows());
  // Threads own columns, not rows: no atomics, and the same share of work however often one token repeats.
  parallel_for(op.d_out.dim(-1), op.ids.numel() + op.d_table.rows(), 64, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scatter_columns)(op, tokens, {begin, end});
  });
}

}  // namespace nought::cpu
#endif
