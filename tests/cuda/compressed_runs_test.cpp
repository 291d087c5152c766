// Runs that send codes, signs or factors of low rank on a CUDA device: their steps are those of the CPU, do not depend
// on the grid, and nothing of them runs on the host.
#include <cmath>
#include <ostream>

#ifdef NOUGHT_CUDA_EMULATED
#include "cuda_emulation/control.h"
#endif
#include "support/guarded_context.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/cuda/backend/kernels.h"

namespace nought::compressed_runs_test {
namespace {

using test::TrainingResult;

struct Way {
  const char* name;
  int stage = 0;
  WireOptions codes = {};
  Method method = AdamOptions{.eps = 1e-4};
  std::optional<PowerSgdOptions> power_sgd = {};
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

constexpr int kRanks = 2;
const Way kCodes{
    .name = "codes", .stage = 3, .codes = {.weight_bits = 8, .gradient_bits = 4, .feedback = ErrorFeedback{}}};

TrainingResult run(const Way& way, const std::vector<Context>& contexts) {
  test::TrainingCase each{.model = test::small_model("qk_norms", /*layers=*/1),
                          .mesh = test::sharded(kRanks, way.stage),
                          .steps = {0, 2},
                          .rows = {.of_step = 8},
                          .accumulation = 1,
                          .contexts = contexts};
  each.settings.codes = way.codes;
  each.settings.optimizer.method = way.method;
  each.settings.power_sgd = way.power_sgd;
  return each.run();
}

TrainingResult run_on_gpus(const Way& way, int64_t max_blocks = 0) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < kRanks; ++rank)
    contexts.push_back(cuda::make_context({.max_blocks = max_blocks, .poison = true}));
  TrainingResult result = run(way, contexts);
  for (const Context& context : contexts)
    EXPECT_EQ(dynamic_cast<const cuda::CudaKernels&>(*context.kernels).runs_on_host(), 0);
  return result;
}

/// The share of weights that differ by more than rounding does.
double share_of_others(const TrainingResult& a, const TrainingResult& b) {
  int64_t others = 0, all = 0;
  for (const auto& [name, values] : a.weights)
    for (size_t i = 0; i < values.size(); ++i, ++all)
      if (std::abs(static_cast<double>(values[i]) - b.weights.at(name)[i]) > 1e-5) ++others;
  return static_cast<double>(others) / static_cast<double>(all);
}

class CudaCompressedRuns : public ::testing::TestWithParam<Way> {};

/// Products round otherwise than on the CPU. So a gradient may be moved over the middle of two codes, or over 0, and
/// travels as another one: that may happen to one in a hundred, here to none.
TEST_P(CudaCompressedRuns, are_those_of_the_cpu) {
  const Way& way = GetParam();
  const auto cpus = test::contexts_of(kRanks, /*guarded=*/false);
  const TrainingResult on_gpus = run_on_gpus(way), on_cpus = run(way, cpus);
  ASSERT_EQ(on_gpus.losses.size(), on_cpus.losses.size());
  for (size_t i = 0; i < on_gpus.losses.size(); ++i) EXPECT_NEAR(on_gpus.losses[i], on_cpus.losses[i], 1e-4) << i;
  EXPECT_LE(share_of_others(on_gpus, on_cpus), 0.01);
  Way plain = way;
  plain.codes = {}, plain.method = AdamOptions{.eps = 1e-4}, plain.power_sgd = {};
  EXPECT_GT(share_of_others(run(plain, cpus), on_cpus), 0.2) << "what is sent changes the run";
}

#ifdef NOUGHT_CUDA_EMULATED
TEST(CudaCompressedGrids, do_not_depend_on_grids_and_the_order_of_threads) {
  const TrainingResult expected = run_on_gpus(kCodes);
  emulation::set_order(5);
  const TrainingResult again = run_on_gpus(kCodes, /*max_blocks=*/3);
  emulation::set_order(0);
  expect_same_bits(again, expected);
}
#endif

INSTANTIATE_TEST_SUITE_P(
    Ways, CudaCompressedRuns,
    ::testing::Values(kCodes, Way{.name = "one_bit_adam", .method = OneBitAdamOptions{.eps = 1e-4, .freeze_step = 1}},
                      Way{.name = "one_bit_lamb", .method = OneBitLambOptions{.eps = 1e-4, .freeze_step = 1}},
                      Way{.name = "power_sgd",
                          .power_sgd = PowerSgdOptions{.rank = 2, .start_iter = 0, .min_compression_rate = 1}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::compressed_runs_test
