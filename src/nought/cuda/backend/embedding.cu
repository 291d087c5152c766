#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"
#include "nought/cuda/backend/sort.h"

namespace nought::cuda {
namespace {

/// Elements of a dense table, or of one of codes.
template <class T>
struct DenseTable {
  using Real = accumulator_t<T>;
  const T* values;
  __device__ Real operator[](int64_t i) const { return Real{values[i]}; }
};
template <class T>
struct QuantizedTable {
  using Real = accumulator_t<T>;
  const int8_t* codes;
  const f16_t* scales;
  __device__ Real operator[](int64_t i) const {
    return static_cast<Real>(codes[i]) * static_cast<Real>(float{scales[i / kCodeBlock]});
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
  bool accumulate;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const int64_t id = ids[row];
    const bool is_there = id >= 0 && id < rows;
    for (int64_t j = begin; j < begin + kCount; ++j) {
      T& to = out[row * n + j];
      const Real value = is_there ? table[id * n + j] : static_cast<Real>(nanf(""));
      to = static_cast<T>(accumulate ? Real{to} + value : value);
    }
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
__global__ void __launch_bounds__(kThreads)
    add_tokens_kernel(const uint64_t* keys, int64_t tokens, const T* d_out, G* d_table, int64_t n, bool accumulate) {
  using Sum = std::common_type_t<accumulator_t<T>, accumulator_t<G>>;
  for (int64_t first = blockIdx.x; first < tokens; first += gridDim.x) {
    const uint64_t id = keys[first] >> 32;
    if (keys[first] == kNoKey || (first > 0 && keys[first - 1] >> 32 == id)) continue;
    G* const d_row = d_table + static_cast<int64_t>(id) * n;
    for (int64_t j = threadIdx.x; j < n; j += kThreads) {
      Sum sum = accumulate ? Sum{d_row[j]} : Sum{0};
      for (int64_t i = first; i < tokens && keys[i] >> 32 == id; ++i)
        sum += Sum{d_out[static_cast<int64_t>(keys[i] & 0xFFFFFFFFu) * n + j]};
      d_row[j] = static_cast<G>(sum);
    }
  }
}

template <class T, class Table>
void look_up(const Embedding& op, const Table& table, const Place& at) {
  const int64_t tokens = op.ids.numel(), n = op.table.dim(-1);
  const LookedUp<T, Table> f{table, op.ids.data<int32_t>(), op.out.data<T>(), op.table.values.rows(), n, op.accumulate};
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
    if (op.table.is_quantized()) {
      look_up<T>(op, QuantizedTable<T>{op.table.values.data<int8_t>(), op.table.scales.data<f16_t>()}, at);
    } else {
      look_up<T>(op, DenseTable<T>{op.table.values.data<T>()}, at);
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
      launch(at.launch, tokens, dim3(kThreads), add_tokens_kernel<T, G>, keys, tokens,
             static_cast<const T*>(op.d_out.data<T>()), op.d_table.data<G>(), n, op.accumulate);
    });
  });
}

}  // namespace nought::cuda
