#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/grouping.h"
#include "nought/kernels/reference/reference.h"
#include "nought/kernels/routing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/moe.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void combine_rows(const CombineRows& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.x.dim(-1), k = op.index.dim(-1);
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* index = op.index.data<int32_t>() + t * k;
      const float* weights = op.weights ? op.weights.data<float>() + t * k : nullptr;
      T* out = op.out.data<T>() + t * n;
      sweep(d, 0, n, [&, out](int64_t j, auto access) HWY_ATTR {
        auto sum = op.accumulate ? access.load(d, out + j) : hn::Zero(d);
        for (int64_t s = 0; s < k; ++s) {
          if (index[s] < 0) continue;
          const auto row = access.load(d, op.x.data<T>() + index[s] * n + j);
          sum = hn::MulAdd(hn::Set(d, weights ? weights[s] : 1.0f), row, sum);
        }
        access.store(d, sum, out + j);
      });
    }
  });
}

void scale_rows(const ScaleRows& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.x.dim(-1);
    for (int64_t i = begin; i < end; ++i) {
      const T* x = op.x.data<T>() + i * n;
      T* y = op.y.data<T>() + i * n;
      const auto factor = hn::Set(d, op.factors.data<float>()[i]);
      sweep(d, 0, n,
            [=](int64_t j, auto access) HWY_ATTR { access.store(d, hn::Mul(factor, access.load(d, x + j)), y + j); });
    }
  });
}

void dot_rows(const DotRows& op, int64_t begin, int64_t end) {
  visit(op.a.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.a.dim(-1);
    for (int64_t i = begin; i < end; ++i) {
      const T *a = op.a.data<T>() + i * n, *b = op.b.data<T>() + i * n;
      Lanes4<F32> sums(d, 0);
      if (op.factors) {
        const T* factors = op.factors.data<T>();
        const auto offset = hn::Set(d, static_cast<float>(op.factor_offset));
        reduce(d, 0, n, sums, [=](int64_t j, auto access, auto& sum) HWY_ATTR {
          const auto scaled = hn::Mul(access.load(d, a + j), hn::Add(access.load(d, factors + j), offset));
          sum = hn::MulAdd(scaled, access.load(d, b + j), sum);
        });
      } else {
        reduce(d, 0, n, sums, [=](int64_t j, auto access, auto& sum) HWY_ATTR {
          sum = hn::MulAdd(access.load(d, a + j), access.load(d, b + j), sum);
        });
      }
      float& out = op.out.data<float>()[i];
      out = sums.sum(d) + (op.accumulate ? out : 0);
    }
  });
}

/// Gates and ups in turn, as two runs of fp32: vectors need each kind by itself.
inline constexpr int64_t kPairs = 256;

/// Calls body(first pair, count, gates, ups) for runs of at most kPairs pairs of [begin, end).
template <class T, class Body>
HWY_INLINE void for_each_run(const T* gate_up, int64_t begin, int64_t end, const Body& body) {
  HWY_ALIGN float gates[kPairs], ups[kPairs];
  for (int64_t first = begin; first < end; first += kPairs) {
    const int64_t count = std::min(kPairs, end - first);
    for (int64_t i = 0; i < count; ++i) {
      gates[i] = static_cast<float>(gate_up[2 * (first + i)]);
      ups[i] = static_cast<float>(gate_up[2 * (first + i) + 1]);
    }
    body(first, count, gates, ups);
  }
}

void clamped_forward(const ClampedSwiglu& op, int64_t begin, int64_t end) {
  visit(op.y.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const auto limit = hn::Set(d, static_cast<float>(op.limit)), alpha = hn::Set(d, static_cast<float>(op.alpha));
    const auto one = hn::Set(d, 1.0f);
    for_each_run(op.gate_up.data<T>(), begin, end,
                 [&](int64_t first, int64_t count, const float* gates, const float* ups) HWY_ATTR {
                   T* y = op.y.data<T>() + first;
                   sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
                     const auto g = hn::Min(access.load(d, gates + i), limit);
                     const auto u = hn::Min(hn::Max(access.load(d, ups + i), hn::Neg(limit)), limit);
                     const auto s = sigmoid(d, hn::Mul(alpha, g));
                     access.store(d, hn::Mul(hn::Mul(hn::Add(u, one), g), s), y + i);
                   });
                 });
  });
}

void clamped_backward(const ClampedSwigluBackward& op, int64_t begin, int64_t end) {
  visit(op.dy.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const auto limit = hn::Set(d, static_cast<float>(op.limit)), alpha = hn::Set(d, static_cast<float>(op.alpha));
    const auto one = hn::Set(d, 1.0f);
    for_each_run(op.gate_up.data<T>(), begin, end,
                 [&](int64_t first, int64_t count, float* gates, float* ups) HWY_ATTR {
                   const T* dy = op.dy.data<T>() + first;
                   sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
                     const auto gate = access.load(d, gates + i), up = access.load(d, ups + i);
                     const auto upstream = access.load(d, dy + i);
                     const auto g = hn::Min(gate, limit), u = hn::Min(hn::Max(up, hn::Neg(limit)), limit);
                     const auto s = sigmoid(d, hn::Mul(alpha, g));
                     const auto slope = hn::Mul(s, hn::MulAdd(hn::Mul(alpha, g), hn::Sub(one, s), one));
                     const auto by_gate = hn::IfThenZeroElse(hn::Gt(gate, limit), hn::Mul(hn::Add(u, one), slope));
                     const auto by_up = hn::IfThenZeroElse(hn::Gt(hn::Abs(up), limit), hn::Mul(g, s));
                     access.store(d, hn::Mul(upstream, by_gate), gates + i);
                     access.store(d, hn::Mul(upstream, by_up), ups + i);
                   });
                   T* d_gate_up = op.d_gate_up.data<T>() + 2 * first;
                   for (int64_t i = 0; i < count; ++i) {
                     d_gate_up[2 * i] = static_cast<T>(gates[i]);
                     d_gate_up[2 * i + 1] = static_cast<T>(ups[i]);
                   }
                 });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(combine_rows);
HWY_EXPORT(scale_rows);
HWY_EXPORT(dot_rows);
HWY_EXPORT(clamped_forward);
HWY_EXPORT(clamped_backward);

void run(const Route& op) {
  if (op.logits.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t experts = op.logits.dim(1);
  const RowChunks chunks(op.logits.dim(0));
  std::vector<std::vector<double>> sums(static_cast<size_t>(chunks.count),
                                        std::vector<double>(static_cast<size_t>(experts)));
  parallel_for(chunks.count, chunks.chunk * experts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      route_tokens<float>(op, chunks[i].begin, chunks[i].end, sums[static_cast<size_t>(i)]);
  });
  double* total = op.probability_sums.data<double>();
  std::fill(total, total + experts, 0.0);
  for (const std::vector<double>& part : sums)
    for (size_t e = 0; e < part.size(); ++e) total[e] += part[e];
}

void run(const RouteBackward& op) {
  if (op.logits.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.logits.dim(0), op.logits.dim(1),
                [&](int64_t begin, int64_t end) { route_tokens_backward<float>(op, begin, end); });
}

void run(const BalanceLoss& op) { reference::run(op); }  // a few values for each expert

// A counting sort on one thread: a few integers for each token.
void run(const GroupByExpert& op) {
  check(op);
  const int64_t tokens = op.experts.dim(0), top_k = op.experts.dim(1);
  const std::span<const int32_t> experts = op.experts.span<int32_t>();
  const std::span<int32_t> counts = op.counts.span<int32_t>();
  std::fill(counts.begin(), counts.end(), 0);
  for (const int32_t e : experts) ++counts[static_cast<size_t>(e)];
  const std::vector<Interval> blocks = expert_blocks<int32_t>(counts, op.capacity);
  std::vector<int64_t> next(counts.size()), end(counts.size());
  for (size_t e = 0; e < counts.size(); ++e)
    next[e] = blocks[e].begin, end[e] = blocks[e].begin + taken_choices(counts[e], op.capacity);
  int32_t *row = op.row.data<int32_t>(), *token = op.token.data<int32_t>(), *pair = op.pair.data<int32_t>();
  std::fill_n(token, op.token.numel(), -1);
  std::fill_n(pair, op.pair.numel(), -1);
  for (int64_t k = 0; k < top_k; ++k) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t choice = t * top_k + k;
      const auto e = static_cast<size_t>(experts[static_cast<size_t>(choice)]);
      const int64_t place = next[e] < end[e] ? next[e]++ : -1;
      row[choice] = static_cast<int32_t>(place);
      if (place < 0) continue;
      token[place] = static_cast<int32_t>(t);
      pair[place] = static_cast<int32_t>(choice);
    }
  }
}

void run(const GatherRows& op) {
  check(op);
  const int64_t n = op.x.dim(-1), bytes = n * size_of(op.x.dtype());
  parallel_rows(op.index.numel(), n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = op.index.data<int32_t>()[i];
      std::byte* to = op.out.raw() + i * bytes;
      if (from < 0) {
        std::memset(to, 0, static_cast<size_t>(bytes));
      } else {
        std::memcpy(to, op.x.raw() + from * bytes, static_cast<size_t>(bytes));
      }
    }
  });
}

void run(const CombineRows& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.index.rows(), op.index.dim(-1) * op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(combine_rows)(op, begin, end);
  });
}

void run(const ScaleRows& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_rows)(op, begin, end);
  });
}

void run(const DotRows& op) {
  if (op.a.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.a.rows(), op.a.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(dot_rows)(op, begin, end);
  });
}

void run(const ClampedSwiglu& op) {
  if (op.y.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.y.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamped_forward)(op, begin, end);
  });
}

void run(const ClampedSwigluBackward& op) {
  if (op.dy.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.dy.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamped_backward)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
