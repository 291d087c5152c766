// Runs that send codes, signs or factors of low rank on a CUDA device: their steps are those of the CPU, do not depend
// on the grid, and nothing of them runs on the host.
#include <cmath>
#include <ostream>

#ifdef NOUGHT_CUDA_EMULATED
#include "cuda_emulation/control.h"
#endif
#include "support/guarded_context.h"
#include "support/mesh_runs.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/cuda/backend/kernels.h"

namespace nought::compressed_runs_test {
namespace {

using test::Course;

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

Course run(const Way& way, const std::vector<Context>& contexts) {
  test::CourseOptions options;
  options.sharding.codes = way.codes;
  options.sharding.optimizer.method = way.method;
  options.sharding.power_sgd = way.power_sgd;
  options.accumulation = 1;
  Course course;
  run_ranks(contexts, [&](Communicator& world, const Context& context) {
    test::CourseOptions mine = options;
    mine.context = &context;
    Course of_rank = test::train_in(world, {.sizes = {.shard = kRanks}, .stage = way.stage},
                                    test::dense_mesh_model(/*layers=*/1), {0, 2}, mine);
    if (world.rank() == 0) course = std::move(of_rank);
  });
  return course;
}

Course run_on_gpus(const Way& way, int64_t max_blocks = 0) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < kRanks; ++rank)
    contexts.push_back(cuda::make_context({.max_blocks = max_blocks, .poison = true}));
  Course course = run(way, contexts);
  for (const Context& context : contexts)
    EXPECT_EQ(dynamic_cast<const cuda::CudaKernels&>(*context.kernels).runs_on_host(), 0);
  return course;
}

/// The share of weights that differ by more than rounding does.
double share_of_others(const Course& a, const Course& b) {
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
  const Course on_gpus = run_on_gpus(way), on_cpus = run(way, cpus);
  ASSERT_EQ(on_gpus.losses.size(), on_cpus.losses.size());
  for (size_t i = 0; i < on_gpus.losses.size(); ++i) EXPECT_NEAR(on_gpus.losses[i], on_cpus.losses[i], 1e-4) << i;
  EXPECT_LE(share_of_others(on_gpus, on_cpus), 0.01);
  Way plain = way;
  plain.codes = {}, plain.method = AdamOptions{.eps = 1e-4}, plain.power_sgd = {};
  EXPECT_GT(share_of_others(run(plain, cpus), on_cpus), 0.2) << "what is sent changes the run";
}

#ifdef NOUGHT_CUDA_EMULATED
TEST(CudaCompressedGrids, do_not_depend_on_grids_and_the_order_of_threads) {
  const Course expected = run_on_gpus(kCodes);
  emulation::set_order(5);
  const Course again = run_on_gpus(kCodes, /*max_blocks=*/3);
  emulation::set_order(0);
  EXPECT_EQ(again.losses, expected.losses);
  EXPECT_EQ(again.norms, expected.norms);
  EXPECT_EQ(again.weights, expected.weights);
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
