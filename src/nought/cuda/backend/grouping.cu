// Rows of tokens by expert: where each choice goes, and operations on rows.
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"
#include "nought/cuda/backend/sort.h"
#include "nought/kernels/grouping.h"

namespace nought::cuda {
namespace {

constexpr int kTokenBits = 32, kPlaceBits = 8;  // of a key: expert, place among the token's choices, token

struct Grouping {
  const int32_t* experts;
  uint64_t* keys;
  int32_t *counts, *row, *token, *pair;
  int64_t* begins;  // [E, 2]: the first choice of an expert among the sorted ones, and its first row
  int64_t tokens, top_k, count, rows, capacity;
};

struct ChoiceKeys {
  Grouping a;
  __device__ void operator()(int64_t i) const {
    if (i >= a.tokens * a.top_k) {
      a.keys[i] = kNoKey;
      return;
    }
    const auto expert = static_cast<uint64_t>(a.experts[i]), place = static_cast<uint64_t>(i % a.top_k);
    a.keys[i] = expert << (kTokenBits + kPlaceBits) | place << kTokenBits | static_cast<uint64_t>(i / a.top_k);
  }
};

struct NoRows {
  Grouping a;
  __device__ void operator()(int64_t i) const {
    a.token[i] = -1;
    a.pair[i] = -1;
  }
};

/// The first key that is not below `key`.
__device__ int64_t lower_bound(const uint64_t* keys, int64_t count, uint64_t key) {
  int64_t first = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    if (keys[first + half] < key) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

/// Counts from where the keys of each expert begin and end.
struct CountedChoices {
  Grouping a;
  __device__ void operator()(int64_t expert) const {
    const int64_t choices = a.tokens * a.top_k;
    const auto key = static_cast<uint64_t>(expert);
    const int64_t begin = lower_bound(a.keys, choices, key << (kTokenBits + kPlaceBits));
    const int64_t end = lower_bound(a.keys, choices, (key + 1) << (kTokenBits + kPlaceBits));
    a.begins[2 * expert] = begin;
    a.counts[expert] = static_cast<int32_t>(end - begin);
  }
};

/// One thread: blocks lie one behind the other.
__global__ void begins_kernel(Grouping a) {
  int64_t begin = 0;
  for (int64_t expert = 0; expert < a.count; ++expert) {
    a.begins[2 * expert + 1] = begin;
    begin += padded_rows(taken_choices(a.counts[expert], a.capacity));
  }
}

struct PlacedChoices {
  Grouping a;
  __device__ void operator()(int64_t i) const {
    const uint64_t key = a.keys[i];
    const auto expert = static_cast<int64_t>(key >> (kTokenBits + kPlaceBits));
    const auto place = static_cast<int64_t>(key >> kTokenBits & ((1u << kPlaceBits) - 1));
    const auto token = static_cast<int64_t>(key & 0xFFFFFFFFu);
    const int64_t choice = token * a.top_k + place;
    const int64_t number = i - a.begins[2 * expert], at = a.begins[2 * expert + 1] + number;
    if (number >= taken_choices(a.counts[expert], a.capacity) || at >= a.rows) {
      a.row[choice] = -1;
      return;
    }
    a.row[choice] = static_cast<int32_t>(at);
    a.token[at] = static_cast<int32_t>(token);
    a.pair[at] = static_cast<int32_t>(choice);
  }
};

/// Indices outside of x give nothing, as -1 does.
template <class T>
struct Gathered {
  const T* x;
  const int32_t* index;
  T* out;
  int64_t rows, n;
  bool aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const int64_t from = index[row];
    Pack<T, kCount> pack{};
    if (from >= 0 && from < rows) pack = load_some<kCount>(x + from * n + begin);
    if constexpr (kCount > 1) {
      store(out + row * n + begin, pack, aligned);
    } else {
      out[row * n + begin] = pack.values[0];
    }
  }
  template <int kCount>
  __device__ Pack<T, kCount> load_some(const T* from) const {
    if constexpr (kCount > 1) {
      return load<kCount>(from, aligned);
    } else {
      Pack<T, 1> one;
      one.values[0] = *from;
      return one;
    }
  }
};

template <class T>
struct Combined {
  using Sum = accumulator_t<T>;
  const T* x;
  const int32_t* index;
  const Sum* weights;  // null: 1
  T* out;
  int64_t rows, n, k;
  bool accumulate, aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    Sum sums[kCount];
    for (int j = 0; j < kCount; ++j) sums[j] = accumulate ? Sum{out[row * n + begin + j]} : Sum{0};
    for (int64_t s = row * k; s < (row + 1) * k; ++s) {
      const int64_t from = index[s];
      if (from < 0 || from >= rows) continue;
      const Sum weight = weights != nullptr ? weights[s] : Sum{1};
      const Values<T, kCount> values(x + from * n + begin, aligned);
      for (int j = 0; j < kCount; ++j) sums[j] = multiply_add(weight, values[j], sums[j]);
    }
    write_values<T, kCount>(out + row * n + begin, aligned, sums);
  }
};

template <class T>
struct ScaledRow {
  using Real = accumulator_t<T>;
  const T* x;
  const Real* factors;
  T* y;
  int64_t n;
  bool aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const Values<T, kCount> values(x + row * n + begin, aligned);
    Real made[kCount];
    for (int k = 0; k < kCount; ++k) made[k] = factors[row] * values[k];
    write_values<T, kCount>(y + row * n + begin, aligned, made);
  }
};

template <class T>
struct Dots {
  using Sum = accumulator_t<T>;
  const T *a, *b, *factors;  // factors: may be null
  Sum* out;
  int64_t rows, n;
  Sum offset;
  bool accumulate, aligned;
};

template <class T>
__global__ void __launch_bounds__(kThreads) dot_rows_kernel(Dots<T> a) {
  using Sum = accumulator_t<T>;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* const b = a.b + row * a.n;
    const Sum sum = sum_over<Sum>(a.a + row * a.n, a.n, a.aligned, [&](int64_t j, Sum value) {
      const Sum factor = a.factors != nullptr ? Sum{a.factors[j]} + a.offset : Sum{1};
      return value * Sum{b[j]} * factor;
    });
    if (threadIdx.x == 0) a.out[row] = a.accumulate ? a.out[row] + sum : sum;
  }
}

}  // namespace

void start(const GroupByExpert& op, Place& at) {
  const int64_t choices = op.experts.numel(), experts = op.counts.numel(), keys = room_of_keys(choices);
  const Grouping a{.experts = op.experts.data<int32_t>(),
                   .keys = static_cast<uint64_t*>(at.room()),
                   .counts = op.counts.data<int32_t>(),
                   .row = op.row.data<int32_t>(),
                   .token = op.token.data<int32_t>(),
                   .pair = op.pair.data<int32_t>(),
                   .begins = static_cast<int64_t*>(at.room()),
                   .tokens = op.experts.dim(0),
                   .top_k = op.experts.dim(1),
                   .count = experts,
                   .rows = op.token.numel(),
                   .capacity = op.capacity};
  for_each(at.launch, keys, ChoiceKeys{a});
  sort_keys(at.launch, a.keys, keys);
  for_each(at.launch, experts, CountedChoices{a});
  launch(at.launch, 1, dim3(1), begins_kernel, a);
  for_each(at.launch, a.rows, NoRows{a});
  for_each(at.launch, choices, PlacedChoices{a});
}

void start(const GatherRows& op, Place& at) {
  const int64_t n = op.x.dim(-1);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = op.x.data<T>();
    T* const out = op.out.data<T>();
    constexpr int kWidth = kPackOf<T>;
    for_each_row<kWidth>(at.launch, op.index.numel(), n,
                         Gathered<T>{x, op.index.data<int32_t>(), out, op.x.rows(), n, packs_fit<kWidth>(n, x, out)});
  });
}

void start(const CombineRows& op, Place& at) {
  const int64_t n = op.x.dim(-1);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T* const x = op.x.data<T>();
    T* const out = op.out.data<T>();
    constexpr int kWidth = kPackOf<T>;
    const Combined<T> combined{.x = x,
                               .index = op.index.data<int32_t>(),
                               .weights = op.weights ? op.weights.data<Sum>() : nullptr,
                               .out = out,
                               .rows = op.x.rows(),
                               .n = n,
                               .k = op.index.dim(-1),
                               .accumulate = op.accumulate,
                               .aligned = packs_fit<kWidth>(n, x, out)};
    for_each_row<kWidth>(at.launch, op.index.rows(), n, combined);
  });
}

void start(const ScaleRows& op, Place& at) {
  const int64_t n = op.x.dim(-1);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = op.x.data<T>();
    T* const y = op.y.data<T>();
    constexpr int kWidth = kPackOf<T>;
    for_each_row<kWidth>(at.launch, op.x.rows(), n,
                         ScaledRow<T>{x, op.factors.data<accumulator_t<T>>(), y, n, packs_fit<kWidth>(n, x, y)});
  });
}

void start(const DotRows& op, Place& at) {
  const int64_t n = op.a.dim(-1);
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T *const a = op.a.data<T>(), *const b = op.b.data<T>();
    const Dots<T> dots{.a = a,
                       .b = b,
                       .factors = op.factors ? op.factors.data<T>() : nullptr,
                       .out = op.out.data<Sum>(),
                       .rows = op.a.rows(),
                       .n = n,
                       .offset = static_cast<Sum>(op.factor_offset),
                       .accumulate = op.accumulate,
                       .aligned = packs_fit<kPackOf<T>>(n, a)};
    launch(at.launch, dots.rows, dim3(kThreads), dot_rows_kernel<T>, dots);
  });
}

}  // namespace nought::cuda
