#include "nought/train/peak.h"

#include <algorithm>
#include <chrono>

#include "nought/comm/mesh.h"
#include "nought/kernels/limits.h"

namespace nought {

MatrixPeak::MatrixPeak(Communicator& ranks, const Context& context, DType dtype) : dtype_(dtype) {
  ranks.barrier().wait();
  // What the host can do says nothing about a GPU, whose peak is not known.
  own_ = context.memory->device().is_host() ? measure_matrix_peak(dtype) : 0;
  flops_ = own_;
  all_reduce_values(ranks, context, std::span(&flops_, 1));
}

double MatrixPeak::share_of(double reached) {
  if (own_ == 0) return 0;
  if (reached > flops_) {
    const double again = std::max(own_, measure_matrix_peak(dtype_));
    flops_ = std::max(flops_ * again / own_, reached);
    own_ = again;
  }
  return reached / flops_;
}

double measure_product_rate(const Context& context, DType dtype) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSize = 1024;
  constexpr std::chrono::milliseconds kTime{100};
  const auto matrix = [&] {
    Tensor m = context.empty({kSize, kSize}, dtype, Category::workspace);
    context.run(Fill{.x = m, .value = 0.5});
    return m;
  };
  const MatMul product{.a = matrix(), .b = matrix(), .c = matrix(), .transpose_b = true};
  double best = 1e30;
  const auto begin = Clock::now();
  while (Clock::now() - begin < kTime) {
    const auto start = Clock::now();
    context.run(product);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return 2.0 * kSize * kSize * kSize / best;
}

}  // namespace nought
