#include "nought/comm/reduction.h"

namespace nought {
namespace {

template <class T, class Better>
void select(const std::vector<Tensor>& inputs, const Tensor& out, Better better) {
  T* result = out.data<T>();
  const int64_t n = out.numel();
  std::vector<const T*> sources;
  for (const Tensor& input : inputs) sources.push_back(input.data<T>());
  for (int64_t i = 0; i < n; ++i) {
    T chosen = sources[0][i];
    for (size_t k = 1; k < sources.size(); ++k) {
      const T value = sources[k][i];
      if (better(value, chosen) || value != value) chosen = value;
    }
    result[i] = chosen;
  }
}

}  // namespace

void Reduction::run(std::vector<Tensor> inputs, const Tensor& out, ReduceOp op) {
  if (out.numel() == 0) return;
  if (adds(op)) return kernels_->run(SumTensors{std::move(inputs), out, op == ReduceOp::pairwise_sum}, inline_);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == ReduceOp::max) {
      select<T>(inputs, out, [](T a, T b) { return a > b; });
    } else {
      select<T>(inputs, out, [](T a, T b) { return a < b; });
    }
  });
}

}  // namespace nought
