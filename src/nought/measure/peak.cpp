#include "nought/measure/peak.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

#include "nought/base/cores.h"
#include "nought/base/host.h"
#include "nought/base/text.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/limits.h"
#include "nought/measure/kept_peak.h"

namespace nought {

MatrixPeak::MatrixPeak(Communicator& ranks, const Context& context, DType dtype, const std::string& kept)
    : dtype_(dtype) {
  constexpr double kQuiet = 0.85;  // of the processor time, and of the best speed
  ranks.barrier().wait();
  // What the host can do says nothing about a GPU, whose peak is not known.
  const bool on_host = context.memory->device().is_host();
  const MatrixPeakSample now = on_host ? sample_matrix_peak(dtype) : MatrixPeakSample{};
  threads_ = now.threads;
  const int threads = now.threads * launched_on_host().value_or(ranks.size());
  const double cores = cores_for_each(find_cores(), threads);
  const std::string key = kept_peak_key(std::string(matrix_peak_name(dtype)));
  own_ = on_host ? cores * now.threads * best_peak(kept, key, now.flops / now.threads) : 0;
  std::array<double, 3> sums{own_, cores * now.flops, now.had / cores};
  all_reduce_values(ranks, context, sums);
  flops_ = sums[0];
  if (!on_host) return;
  const double had = std::min(1.0, sums[2] / ranks.size()), speed = sums[1] / sums[0];
  if (speed < kQuiet) note_ += fmt::format(", the best that this machine has shown: {:.0f}% of it now", 100 * speed);
  if (had < kQuiet) note_ += fmt::format("; the machine is busy: ranks had {:.0f}% of their cores", 100 * had);
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

double kept_product_rate(const Context& context, DType dtype, int threads, const std::string& kept) {
  const std::string key =
      kept_peak_key(fmt::format("products in {} by {} threads, {}", name_of(dtype), threads, matrix_peak_name(dtype)));
  return kept_rate(kept, key, [&] { return measure_product_rate(context, dtype); });
}

std::string note_of_slow_bf16(const Context& context, int threads, const std::string& kept) {
  const auto rate = [&](DType dtype) {
    return format_rate(kept_product_rate(context, dtype, threads, kept), "FLOP/s");
  };
  return fmt::format(
      "this CPU has {}: a rank's matrix products ran at {} in bf16 and {} in fp32 when that was measured; "
      "training.bf16 = \"auto\" chooses what the CPU has units for",
      describe_bf16_units(), rate(DType::bf16), rate(DType::f32));
}

}  // namespace nought
