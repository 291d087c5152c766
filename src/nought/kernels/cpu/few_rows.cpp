#include "nought/kernels/cpu/few_rows.h"

#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/gemm_chunks.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/few_rows_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

// --- A: a row of factors for each row ---

/// to: [m, stride] = A, widened, or in pairs of bf16 as they are; zeros up to the stride.
template <class Words, class T>
void load_factors(const Product& product, int64_t stride, float* to) {
  using Factor = std::conditional_t<Words::kDotted, bf16_t, float>;
  const auto [m, n, k] = product.sizes;
  const T* a = static_cast<const T*>(product.a);
  for (int64_t row = 0; row < m; ++row) {
    auto* factors = reinterpret_cast<Factor*>(to + row * stride);
    if (product.transpose_a) {
      for (int64_t p = 0; p < k; ++p) factors[p] = static_cast<Factor>(a[p * product.lda + row]);
    } else if constexpr (std::is_same_v<Factor, T>) {
      std::copy_n(a + row * product.lda, k, factors);
    } else {
      widen(a + row * product.lda, k, factors);
    }
    std::fill(factors + k, reinterpret_cast<Factor*>(to + (row + 1) * stride), Factor());
  }
}

// --- B, its words in vectors of columns ---

/// Columns of C that a thread takes at a time. Those of a B that is stored transposed are rows, which are far apart;
/// other rows of B are read in long stretches, as long as the sums stay in the first cache.
inline int64_t columns_at_once(const Product& product) {
  return product.transpose_b ? 32 : std::max<int64_t>(256, 4096 / product.sizes.m / 64 * 64);
}
/// Words along k of a panel of columns.
inline constexpr int64_t kPanelWords = 128;

/// A stretch of the rows of a transposed B. Behind its end a thread goes on at another place.
template <class Element>
struct Stretch {
  const Element* data;
  int64_t stride, count;
  int64_t near, ahead, ahead_behind;  // while element p is read, p + ahead is fetched; from `near` on, p + ahead_behind
};

/// sums += the factors of rows, x, times a square of words that begins at `from`. The words are transposed in
/// registers: nothing but B is read.
template <class Words, int kRows>
HWY_INLINE void add_square(const typename Words::Element* from, int64_t ldb, int64_t ahead, const float* x,
                           int64_t stride, FloatVector (&sums)[kRows]) {
  constexpr int64_t kLanes = hn::MaxLanes(F32());
  FloatVector words[kLanes];
  load_square<Words>(from, ldb, ahead, words);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r] = Words::add(sums[r], x + r * stride + i * Words::kFactors, words[i]);
}

/// to: [kRows, width] = the sums of the first chunk, or += them where `adds`; then those of the chunks behind it. They
/// are factors of rows times two vectors of columns, whose rows are a multiple of the words of a vector long, as a
/// chunk is.
template <class Words, int kRows>
HWY_INLINE void add_columns(const Stretch<typename Words::Element>& b, int64_t chunk, const float* factors,
                            int64_t stride, float* to, int64_t width, bool adds) {
  using Element = typename Words::Element;
  const F32 d;
  constexpr int64_t kLanes = hn::MaxLanes(F32()), kStep = kLanes * Words::kElements;
  // Rows are often a power of two apart and share the sets of a cache: the second vector is that far behind the first,
  // and further than elements are fetched ahead.
  const int64_t lag = std::min(ceil_div(512 / sizeof(Element), kStep) * kStep, b.count);
  FloatVector sums[2][kRows];
  // Each vector sums a chunk of its own, which ends here.
  int64_t ends[2] = {std::min(chunk, b.count), std::min(chunk, b.count)};
  const auto clear = [&](auto vector) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[vector][r] = hn::Zero(d);
  };
  const auto add = [&](auto vector, int64_t p) HWY_ATTR {
    constexpr int64_t kVector = decltype(vector)::value;
    add_square<Words>(b.data + kVector * kLanes * b.stride + p, b.stride, p < b.near ? b.ahead : b.ahead_behind,
                      factors + p / Words::kElements * Words::kFactors, stride, sums[kVector]);
    const int64_t done = p + kStep;
    if (done != ends[kVector]) return;
    ends[kVector] = std::min(done + chunk, b.count);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float* at = to + r * width + kVector * kLanes;
      hn::StoreU(adds || done > chunk ? hn::Add(hn::LoadU(d, at), sums[kVector][r]) : sums[kVector][r], d, at);
    }
    clear(vector);
  };
  constexpr std::integral_constant<int, 0> first;
  constexpr std::integral_constant<int, 1> second;
  clear(first), clear(second);
  for (int64_t p = 0; p < lag; p += kStep) add(first, p);
  for (int64_t p = lag; p < b.count; p += kStep) add(first, p), add(second, p - lag);
  for (int64_t p = b.count - lag; p < b.count; p += kStep) add(second, p);
}

/// sums: [m, width] += factors of rows times kWords words of each column of B: [k, columns], `rows` of which are left.
template <class Words, int kWords, class Element>
HWY_INLINE void add_rows(const Element* b, int64_t ldb, int64_t rows, int64_t columns, const float* factors,
                         int64_t stride, int64_t m, float* sums, int64_t width) {
  const F32 d;
  sweep(d, 0, columns, [=](int64_t j, auto access) HWY_ATTR {
    FloatVector words[kWords];
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i)
      words[i] = Words::load_rows(b + i * Words::kElements * ldb + j, ldb, (i + 1) * Words::kElements <= rows, access);
    for (int64_t r = 0; r < m; ++r) {
      float* at = sums + r * width + j;
      auto sum = access.load(d, at);
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) sum = Words::add(sum, factors + r * stride + i * Words::kFactors, words[i]);
      access.store(d, sum, at);
    }
  });
}

/// Columns of c, a group after the other, by one thread. T: the dtype of the inputs.
template <class Words, class T>
class FewRows {
  using Element = typename Words::Element;

  static constexpr int64_t kAhead = 256 / sizeof(Element);  // how far elements are fetched before they are read
  static constexpr int64_t kStep = hn::MaxLanes(F32()) * Words::kElements;  // elements of a vector along k

 public:
  FewRows(const Product& product, const float* factors, int64_t stride)
      : product_(product),
        factors_(factors),
        stride_(stride),
        width_(columns_at_once(product)),
        chunk_(chunk_of(product.sizes.k, Words::kDotted
                                             ? longest_dot_chunk(product.transpose_a)
                                             : longest_float_chunk(product.transpose_a, HWY_TARGET == HWY_AVX3))),
        panel_(bytes_for<float>(product.transpose_b ? width_ * kPanelWords : 0)),
        sums_(bytes_for<float>(2 * product.sizes.m * width_)),
        decoded_(bytes_for<Element>(product.codes == nullptr ? 0 : width_ * chunk_)),
        totals_(sums_.data<float>() + product.sizes.m * width_) {}

  void run(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; j += width_) multiply({j, std::min(end, j + width_)});
  }

 private:
  void multiply(Interval columns) const {
    begin_totals(columns);
    has_whole_columns(columns) ? multiply_whole(columns) : multiply_chunks(columns);
    finish(columns);
  }

  /// Whether columns lie in memory as they are multiplied, in whole vectors along k.
  bool has_whole_columns(Interval columns) const {
    return product_.transpose_b && product_.codes == nullptr && takes_squares(columns) && product_.sizes.k % kStep == 0;
  }
  /// Whether words of these columns are transposed in registers.
  bool takes_squares(Interval columns) const { return product_.sizes.m <= kTileRows && columns.size() == width_; }
  /// Along the whole of k at once: nothing ends and begins anew with a chunk but the sums.
  void multiply_whole(Interval columns) const {
    const Element* b = static_cast<const Element*>(product_.b) + columns.begin * product_.ldb;
    add_whole_columns(b, product_.ldb, {0, product_.sizes.k}, chunk_, totals_, adds_to_floats());
  }
  void multiply_chunks(Interval columns) const {
    const int64_t m = product_.sizes.m, k = product_.sizes.k;
    float* sums = sums_.template data<float>();
    for (int64_t begin = 0; begin < k; begin += chunk_) {
      const Interval chunk{begin, std::min(k, begin + chunk_)};
      std::fill_n(sums, m * width_, 0.0f);
      if (!add_blocks(columns, chunk)) {
        if (product_.codes != nullptr) decode_columns(columns, chunk);
        product_.transpose_b ? add_transposed(columns, chunk) : add_stored(columns, chunk);
      }
      gather(columns, chunk.begin == 0);
    }
  }

  /// Adds the products of columns that are rows of blocks of GGUF. False: nothing was added, as the kernel does not
  /// take them.
  bool add_blocks([[maybe_unused]] Interval columns, [[maybe_unused]] Interval chunk) const {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<Words, WideWords<float>>) {
      const int64_t m = product_.sizes.m;
      if (product_.codes == nullptr || !product_.codes->is_blocks() || m > kTileRows) return false;
      const std::optional<BlockRows> rows = rows_of_blocks(*product_.codes, columns);
      const bool whole = columns.size() % kBlockColumns == 0 && chunk.begin % 16 == 0 && chunk.size() % 16 == 0;
      if (!rows || !whole || !rows->format->gguf) return false;
      with_count<kTileRows>(m, [&](auto count) HWY_ATTR {
        for (int64_t j = 0; j < columns.size(); j += kBlockColumns)
          add_block_columns<Words, decltype(count)::value>(*rows->format, rows->bytes + j * rows->row_bytes,
                                                           rows->row_bytes, chunk, factors_ + chunk.begin, stride_,
                                                           sums_.template data<float>() + j, width_);
      });
      return true;
    }
#endif
    return false;
  }

  void decode_columns(Interval columns, Interval chunk) const {
    const int64_t k = product_.sizes.k;
    for (int64_t j = 0; j < columns.size(); ++j)
      decode(*product_.codes, (columns.begin + j) * k + chunk.begin, chunk.size(), dtype_of_v<Element>,
             decoded_.template data<Element>() + j * chunk.size());
  }

  void add_stored(Interval columns, Interval chunk) const {
    constexpr int kWords = 8 / Words::kElements;
    const auto* b = static_cast<const Element*>(product_.b) + columns.begin;
    const auto add = [&](auto words, int64_t p) HWY_ATTR {
      add_rows<Words, decltype(words)::value>(b + p * product_.ldb, product_.ldb, chunk.end - p, columns.size(),
                                              factors_ + p / Words::kElements * Words::kFactors, stride_,
                                              product_.sizes.m, sums_.template data<float>(), width_);
    };
    int64_t p = chunk.begin;
    for (; p + 8 <= chunk.end; p += 8) add(std::integral_constant<int, kWords>(), p);
    for (; p < chunk.end; p += Words::kElements) add(std::integral_constant<int, 1>(), p);
  }

  void add_transposed(Interval columns, Interval chunk) const {
    constexpr int64_t kPart = kPanelWords * Words::kElements;
    const bool codes = product_.codes != nullptr;
    const int64_t ldb = codes ? chunk.size() : product_.ldb;
    const Element* b = codes ? decoded_.template data<Element>()
                             : static_cast<const Element*>(product_.b) + columns.begin * ldb + chunk.begin;
    int64_t done = 0;
    if (takes_squares(columns)) {
      done = chunk.size() / kStep * kStep;
      add_whole_columns(b, ldb, {chunk.begin, chunk.begin + done}, done, sums_.template data<float>(), false);
    }
    for (; done < chunk.size(); done += kPart) {
      const int64_t count = std::min(kPart, chunk.size() - done);
      for (int64_t j = 0; j < columns.size(); j += lanes())
        transpose_rows<Words>(b + j * ldb + done, ldb, std::min(columns.size() - j, lanes()), count, kAhead,
                              panel_.template data<float>() + j, width_);
      add_panel(columns.size(), chunk.begin + done, count);
    }
  }
  /// Products of whole vectors `along` k, which need no panel, by chunks: add_columns(). b: the element at along.begin.
  void add_whole_columns(const Element* b, int64_t ldb, Interval along, int64_t chunk, float* to, bool adds) const {
    const float* factors = factors_ + along.begin / Words::kElements * Words::kFactors;
    with_count<kTileRows>(product_.sizes.m, [&](auto rows) HWY_ATTR {
      for (int64_t j = 0; j < width_; j += 2 * lanes()) {
        const Stretch<Element> stretch{.data = b + j * ldb,
                                       .stride = ldb,
                                       .count = along.size(),
                                       .near = product_.sizes.k - along.begin - kAhead,
                                       .ahead = kAhead,
                                       .ahead_behind = kAhead - product_.sizes.k + 2 * lanes() * ldb};
        add_columns<Words, decltype(rows)::value>(stretch, chunk, factors, stride_, to + j, width_, adds);
      }
    });
  }

  /// The panel holds `count` elements of each column, from `begin` on.
  void add_panel(int64_t columns, int64_t begin, int64_t count) const {
    add_tiles<Words>(factors_ + begin / Words::kElements * Words::kFactors, stride_, panel_.template data<float>(),
                     width_, ceil_div(count, Words::kElements), sums_.template data<float>(), product_.sizes.m,
                     columns);
  }

  /// An f32 C that accumulates is what chunks are added to, the first one too.
  bool adds_to_floats() const { return product_.accumulate && product_.output == DType::f32; }
  void begin_totals(Interval columns) const {
    if (!adds_to_floats()) return;
    const float* c = static_cast<const float*>(product_.c) + columns.begin;
    for (int64_t row = 0; row < product_.sizes.m; ++row)
      std::copy_n(c + row * product_.ldc, columns.size(), totals_ + row * width_);
  }
  /// totals: [m, columns] += the sums of a chunk, or = those of the first one where nothing is there.
  void gather(Interval columns, bool first) const {
    const F32 d;
    for (int64_t row = 0; row < product_.sizes.m; ++row) {
      const float* sums = sums_.template data<float>() + row * width_;
      float* totals = totals_ + row * width_;
      if (first && !adds_to_floats()) {
        std::copy_n(sums, columns.size(), totals);
        continue;
      }
      sweep(d, 0, columns.size(), [=](int64_t j, auto access) HWY_ATTR {
        access.store(d, hn::Add(access.load(d, totals + j), access.load(d, sums + j)), totals + j);
      });
    }
  }

  void finish(Interval columns) const {
    product_.output == DType::f32 ? finish_as(static_cast<float*>(product_.c), columns, false)
                                  : finish_as(static_cast<T*>(product_.c), columns, product_.accumulate);
  }
  template <class Out>
  void finish_as(Out* c, Interval columns, bool adds) const {
    const F32 d;
    const T* bias = product_.bias == nullptr ? nullptr : static_cast<const T*>(product_.bias) + columns.begin;
    for (int64_t row = 0; row < product_.sizes.m; ++row) {
      const float* totals = totals_ + row * width_;
      Out* out = c + row * product_.ldc + columns.begin;
      sweep(d, 0, columns.size(), [=](int64_t j, auto access) HWY_ATTR {
        auto sum = access.load(d, totals + j);
        if (bias != nullptr) sum = hn::Add(sum, access.load(d, bias + j));
        if (adds) sum = hn::Add(access.load(d, out + j), sum);
        access.store(d, sum, out + j);
      });
    }
  }

  const Product& product_;
  const float* factors_;
  int64_t stride_;
  int64_t width_, chunk_;
  Scratch panel_, sums_, decoded_;
  float* totals_;
};

template <class Words, class T>
void multiply_few_by(const Product& product) {
  const auto [m, n, k] = product.sizes;
  const int64_t stride = ceil_div(k, Words::kElements) * Words::kFactors;
  const Scratch factors(bytes_for<float>(m * stride));
  load_factors<Words, T>(product, stride, factors.data<float>());
  // By whole stretches: threads do not share the lines of c.
  parallel_for(n, m * k, columns_at_once(product), [&](int64_t begin, int64_t end) {
    FewRows<Words, T>(product, factors.data<float>(), stride).run(begin, end);
  });
}

/// dots: pairs of bf16 are multiplied as such.
void multiply_few_rows(const Product& product, [[maybe_unused]] bool dots) {
  visit(product.inputs, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bf16_t>) {
#if HWY_TARGET == HWY_AVX3
      if (dots) return multiply_few_by<DottedPairs, T>(product);
#endif
      if (product.codes == nullptr) return multiply_few_by<WidenedPairs, T>(product);
    } else if (product.codes == nullptr) {
      return multiply_few_by<WideWords<T>, T>(product);
    }
    multiply_few_by<WideWords<float>, T>(product);  // codes are decoded to fp32
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(multiply_few_rows);

void multiply_few(const Product& product) {
  if (product.codes != nullptr && product.codes->kind() == CodeKind::q8_0) return multiply_few_by_codes(product);
  HWY_DYNAMIC_DISPATCH(multiply_few_rows)(product, has_bf16_units());
}

}  // namespace nought::cpu
#endif
