#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"
#include "nought/cuda/backend/sort.h"

namespace nought::cuda {
namespace {

/// kCount neighbours of a dense table, or of one of codes.
template <class T>
struct DenseTable {
  using Real = accumulator_t<T>;
  const T* values;
  template <int kCount>
  __device__ void read(int64_t at, bool aligned, Real (&to)[kCount]) const {
    const Values<T, kCount> from(values + at, aligned);
    for (int k = 0; k < kCount; ++k) to[k] = from[k];
  }
};
template <class T>
struct QuantizedTable {
  using Real = accumulator_t<T>;
  const int8_t* codes;
  const f16_t* scales;
  template <int kCount>
  __device__ void read(int64_t at, bool /*aligned*/, Real (&to)[kCount]) const {
    for (int k = 0; k < kCount; ++k)
      to[k] = static_cast<Real>(codes[at + k]) * static_cast<Real>(float{scales[(at + k) / kCodeBlock]});
  }
};

/// Rows of ids outside of the table become NaN.
template <class T, class Table>
struct LookedUp {
  using Real = accumulator_t<T>;
  Table table;
  const int32_t* ids;
  T* out;
  int64_t rows, n;
  bool accumulate, aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const int64_t id = ids[row];
    T* const to = out + row * n + begin;
    Real values[kCount];
    if (id >= 0 && id < rows) {
      table.template read<kCount>(id * n + begin, aligned, values);
    } else {
      for (int k = 0; k < kCount; ++k) values[k] = static_cast<Real>(nanf(""));
    }
    if (accumulate) {
      const Values<T, kCount> before(to, aligned);
      for (int k = 0; k < kCount; ++k) values[k] = before[k] + values[k];
    }
    write_values<T, kCount>(to, aligned, values);
  }
};

/// Tokens as keys that sort by id, then by their order; those of ids outside of the table sort last.
struct TokenKeys {
  const int32_t* ids;
  uint64_t* keys;
  int64_t tokens, rows;
  __device__ void operator()(int64_t i) const {
    const bool is_there = i < tokens && ids[i] >= 0 && ids[i] < rows;
    keys[i] = is_there ? static_cast<uint64_t>(ids[i]) << 32 | static_cast<uint64_t>(i) : kNoKey;
  }
};

/// A block has a place among the sorted tokens: the first token of an id adds all rows of it, in their order.
template <class T, class G>
__global__ void __launch_bounds__(kThreads) add_tokens_kernel(const uint64_t* keys, int64_t tokens, const T* d_out,
                                                              G* d_table, int64_t n, bool aligned, bool accumulate) {
  using Sum = std::common_type_t<accumulator_t<T>, accumulator_t<G>>;
  for (int64_t first = blockIdx.x; first < tokens; first += gridDim.x) {
    const uint64_t id = keys[first] >> 32;
    if (keys[first] == kNoKey || (first > 0 && keys[first - 1] >> 32 == id)) continue;
    int64_t end = first + 1;
    while (end < tokens && keys[end] >> 32 == id) ++end;
    for_each_pack<kPackOf<T>>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      G* const row = d_table + static_cast<int64_t>(id) * n + begin;
      Sum sums[kCount];
      for (int k = 0; k < kCount; ++k) sums[k] = accumulate ? Sum{row[k]} : Sum{0};
      NOUGHT_UNROLL_BY(4)
      for (int64_t i = first; i < end; ++i) {
        const Values<T, kCount> values(d_out + static_cast<int64_t>(keys[i] & 0xFFFFFFFFu) * n + begin, aligned);
        for (int k = 0; k < kCount; ++k) sums[k] += Sum{values[k]};
      }
      for (int k = 0; k < kCount; ++k) row[k] = static_cast<G>(sums[k]);
    });
  }
}

template <class T, class Table>
void look_up(const Embedding& op, const Table& table, bool aligned, const Place& at) {
  const int64_t tokens = op.ids.numel(), n = op.table.dim(-1);
  const LookedUp<T, Table> f{table, op.ids.data<int32_t>(), op.out.data<T>(), op.table.values.rows(),
                             n,     op.accumulate,          aligned};
  for_each_row<kPackOf<T>>(at.launch, tokens, n, f);
}

}  // namespace

void start(const Embedding& op, Place& at) {
  require<DeviceError>(!op.table.is_four_bits(),
                       "Embedding: the table is {}: rows of 4-bit codes are not looked up on a "
                       "GPU",
                       op.table.str());
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const out = op.out.data<T>();
    const int64_t n = op.table.dim(-1);
    if (op.table.is_quantized()) {
      const QuantizedTable<T> table{op.table.values.data<int8_t>(), op.table.scales.data<f16_t>()};
      look_up<T>(op, table, packs_fit<kPackOf<T>>(n, out), at);
    } else {
      const T* const values = op.table.values.data<T>();
      look_up<T>(op, DenseTable<T>{values}, packs_fit<kPackOf<T>>(n, out, values), at);
    }
  });
}

void start(const EmbeddingBackward& op, Place& at) {
  const int64_t tokens = op.ids.numel(), n = op.d_out.dim(-1), count = room_of_keys(tokens);
  if (!op.accumulate) fill(at.launch, array_of(op.d_table), 0, op.d_table.numel());
  if (tokens == 0) return;
  auto* const keys = static_cast<uint64_t*>(at.room());
  for_each(at.launch, count, TokenKeys{op.ids.data<int32_t>(), keys, tokens, op.d_table.rows()});
  sort_keys(at.launch, keys, count);
  visit_float(op.d_out.dtype(), [&](auto out_tag) {
    visit_float(op.d_table.dtype(), [&](auto table_tag) {
      using T = typename decltype(out_tag)::type;
      using G = typename decltype(table_tag)::type;
      const T* const d_out = op.d_out.data<T>();
      launch(at.launch.by_tiles(), tokens, dim3(kThreads), add_tokens_kernel<T, G>, keys, tokens, d_out,
             op.d_table.data<G>(), n, packs_fit<kPackOf<T>>(n, d_out), op.accumulate);
    });
  });
}

}  // namespace nought::cuda
