// How often a step makes the host wait for a GPU: once, for its sums, and once more for each count of the tokens that
// experts got. Operations that run on the host bring their operands there; those waits are not counted here.
#include <thread>

#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::transfers_test {
namespace {

/// The waits of each of two steps of two micro-batches.
std::vector<int64_t> waits_of_steps(const ModelConfig& config, const Method& method,
                                    const std::optional<PowerSgdOptions>& power_sgd = {}) {
  const Context context = cuda::make_context({.poison = true});
  const auto& kernels = dynamic_cast<const cuda::CudaKernels&>(*context.kernels);
  const auto waits = [&] {
    return context.stream->waits_of(std::this_thread::get_id()) - kernels.waits_for_operands();
  };
  const auto self = make_self_communicator();
  Decoder decoder(config, {});
  ShardedModel model(context, *self, decoder, {.optimizer = {.method = method}, .power_sgd = power_sgd});
  model.load(InitialState(3));
  Engine engine(model);
  std::vector<int64_t> counted;
  for (int64_t step = 0; step < 2; ++step) {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < 2; ++i)
      batches.push_back(test::rows_of(*context.memory, config, {.of_step = 16}, step, i, 2, 0, 4));
    const int64_t before = waits();
    engine.step(batches, 1, 1e-3, 1.0);
    counted.push_back(waits() - before);
  }
  return counted;
}

TEST(CudaTransfers, a_step_waits_once_for_the_gpu) {
  EXPECT_EQ(waits_of_steps(test::small_model("qk_norms"), AdamOptions{}), (std::vector<int64_t>{1, 1}));
}

TEST(CudaTransfers, norms_of_whole_parameters_do_not_wait) {
  EXPECT_EQ(waits_of_steps(test::small_model("qk_norms"), LambOptions{}), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(waits_of_steps(test::small_model("qk_norms"), MuonOptions{}), (std::vector<int64_t>{1, 1}));
}

TEST(CudaTransfers, steps_that_send_less_wait_no_more) {
  const ModelConfig config = test::small_model("qk_norms");
  const std::vector<int64_t> once{1, 1};
  EXPECT_EQ(waits_of_steps(config, OneBitAdamOptions{.freeze_step = 1}), once);
  EXPECT_EQ(waits_of_steps(config, AdamOptions{}, PowerSgdOptions{.start_iter = 0, .min_compression_rate = 1}), once);
}

TEST(CudaTransfers, each_layer_of_experts_waits_once_more_in_each_forward_pass) {
  EXPECT_EQ(waits_of_steps(test::small_model("shared_experts"), AdamOptions{}), (std::vector<int64_t>{3, 3}));
}

}  // namespace
}  // namespace nought::transfers_test
