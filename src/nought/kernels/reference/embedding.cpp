#include <algorithm>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// table[i]: the elements of the table, seen flat, as T or in the type of sums.
template <class T, class Values>
void look_up(const Embedding& op, const Values& table) {
  using Sum = accumulator_t<T>;
  const int64_t n = op.table.dim(-1);
  for (int64_t t = 0; t < op.ids.numel(); ++t) {
    const int64_t begin = op.ids.data<int32_t>()[t] * n;
    T* out = op.out.data<T>() + t * n;
    for (int64_t j = 0; j < n; ++j)
      out[j] = op.accumulate ? static_cast<T>(Sum{out[j]} + Sum{table[begin + j]}) : static_cast<T>(table[begin + j]);
  }
}

}  // namespace

void run(const Embedding& op) {
  check(op);
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op.table.is_quantized()) {
      look_up<T>(op, QuantizedValues<accumulator_t<T>>(op.table));
    } else {
      look_up<T>(op, op.table.values.data<T>());
    }
  });
}

void run(const EmbeddingBackward& op) {
  check(op);
  visit_floats(op.d_out.dtype(), op.d_table.dtype(), [&](auto out_tag, auto table_tag) {
    using T = typename decltype(out_tag)::type;
    using G = typename decltype(table_tag)::type;
    using Sum = std::common_type_t<accumulator_t<T>, accumulator_t<G>>;
    const int64_t n = op.d_out.dim(-1);
    std::vector<Sum> sums(static_cast<size_t>(op.d_table.numel()));
    G* d_table = op.d_table.data<G>();
    if (op.accumulate) std::copy(d_table, d_table + sums.size(), sums.begin());
    for (int64_t t = 0; t < op.ids.numel(); ++t) {
      Sum* row = sums.data() + op.ids.data<int32_t>()[t] * n;
      for (int64_t j = 0; j < n; ++j) row[j] += Sum{op.d_out.data<T>()[t * n + j]};
    }
    for (size_t i = 0; i < sums.size(); ++i) d_table[i] = static_cast<G>(sums[i]);
  });
}

}  // namespace nought::reference
