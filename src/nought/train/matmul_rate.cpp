#include "nought/train/matmul_rate.h"

#include <algorithm>
#include <chrono>

namespace nought {

double measure_matmul_rate(Communicator& ranks, const Context& context, DType dtype) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSize = 1024;
  constexpr std::chrono::milliseconds kTime{150};
  const auto matrix = [&] {
    Tensor m = context.empty({kSize, kSize}, dtype, Category::workspace);
    context.run(Fill{.x = m, .value = 0.5});
    return m;
  };
  const MatMul product{.a = matrix(), .b = matrix(), .c = matrix(), .transpose_b = true};
  ranks.barrier().wait();
  double best = 1e30;
  const auto begin = Clock::now();
  while (Clock::now() - begin < kTime) {
    const auto start = Clock::now();
    context.run(product);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  const double rate = 2.0 * kSize * kSize * kSize / best;
  const Tensor sum = Tensor::of<double>(*context.memory, {1}, std::span(&rate, 1), Category::communication);
  ranks.all_reduce(sum).wait();
  return sum.item();
}

}  // namespace nought
