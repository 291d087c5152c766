// Training over the links of devices: the bits that the host's way has, whatever the layout; and a host that waits for
// several ranks no more often than for one.
#include <thread>

#include "cuda/linked_ranks.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/device.h"

namespace nought::linked_models_test {
namespace {

/// Two steps on the layout.
test::TrainingCase on(const test::MeshLayout& layout, int64_t accumulation = 1) {
  return {.model = test::small_model(layout.sizes.expert > 1 ? "shared_experts" : "qk_norms",
                                     layout.sizes.expert > 1 ? 2 : 1),
          .mesh = layout,
          .steps = {0, 2},
          .rows = {.of_step = 4 * accumulation},
          .accumulation = accumulation};
}

test::TrainingResult run_on(const test::TrainingCase& each, const LinkOptions& links) {
  test::TrainingResult result;
  const auto body = [&](Communicator& world, const Context& context) {
    test::TrainingResult of_rank = each.run_in(world, context);
    if (world.rank() == 0) result = std::move(of_rank);
  };
  EXPECT_TRUE(test::run_linked(each.mesh.ranks(), body, links));
  EXPECT_FALSE(result.losses.empty());
  return result;
}

TEST(LinkedModels, stages_have_the_bits_that_they_have_through_the_host) {
  NOUGHT_NEEDS_DEVICES(3);
  const test::TrainingResult expected = run_on(on(test::sharded(2, 0)), test::not_linked());
  for (const int stage : {0, 1, 2, 3})
    expect_same_bits(run_on(on(test::sharded(2, stage)), test::linked_always()), expected);
}

TEST(LinkedModels, experts_matrices_layers_and_replicas_have_the_bits_that_they_have_through_the_host) {
  NOUGHT_NEEDS_DEVICES(4);
  for (const test::TrainingCase& each :
       {on({.sizes = {.tensor = 2}}), on({.sizes = {.pipeline = 2}}, /*accumulation=*/2),
        on({.sizes = {.shard = 2, .expert = 2}, .stage = 2}), on({.sizes = {.replicate = 2, .shard = 2}, .stage = 3})})
    expect_same_bits(run_on(each, test::linked_always()), run_on(each, test::not_linked()));
}

TEST(LinkedModels, sums_of_the_library_train_as_those_of_one_rank_do) {
  NOUGHT_NEEDS_DEVICES(4);
  expect_close(run_on(on(test::sharded(4, 3)), test::linked_with_library_sums()), run_on(on({}), {}));
}

/// How often the first rank's host waits in each of two steps of two micro-batches.
std::vector<int64_t> waits_of_steps(const ModelConfig& config, const Method& method, int stage,
                                    const LinkOptions& links) {
  std::vector<int64_t> counted;
  test::run_linked(
      2,
      [&](Communicator& world, const Context& context) {
        const auto& device = dynamic_cast<const cuda::CudaDevice&>(context.memory->device());
        const auto& kernels = dynamic_cast<const cuda::CudaKernels&>(*context.kernels);
        const auto waits = [&] { return device.waits_of(std::this_thread::get_id()) - kernels.waits_for_operands(); };
        Decoder decoder(config, {});
        ShardedModel model(context, world, decoder, {.policy = Policy::stage(stage), .optimizer = {.method = method}});
        model.load(InitialState(3));
        Engine engine(model);
        for (int64_t step = 0; step < 2; ++step) {
          std::vector<Batch> batches;
          for (int64_t i = 0; i < 2; ++i)
            batches.push_back(test::rows_of(*context.memory, config, {.of_step = 16}, step, i, 2, world.rank(), 4));
          const int64_t before = waits();
          engine.step(batches, 1, 1e-3, 1.0);
          if (world.rank() == 0) counted.push_back(waits() - before);
        }
      },
      links);
  return counted;
}

TEST(LinkedTransfers, a_step_of_two_ranks_waits_once_for_the_gpu) {
  NOUGHT_NEEDS_DEVICES(2);
  const std::vector<int64_t> once{1, 1};
  const auto waits = [](const Method& method, int stage, const LinkOptions& links) {
    return waits_of_steps(test::small_model("qk_norms"), method, stage, links);
  };
  for (const int stage : {0, 2, 3}) EXPECT_EQ(waits(AdamOptions{}, stage, test::linked_always()), once) << stage;
  EXPECT_EQ(waits(LambOptions{}, 2, test::linked_always()), once);
  EXPECT_EQ(waits(MuonOptions{}, 3, test::linked_always()), once);
  for (const int64_t each : waits(AdamOptions{}, 3, test::not_linked())) EXPECT_GT(each, 4) << "the counter sees them";
}

TEST(LinkedTransfers, each_layer_of_experts_waits_once_more_in_each_forward_pass) {
  NOUGHT_NEEDS_DEVICES(2);
  EXPECT_EQ(waits_of_steps(test::small_model("shared_experts"), AdamOptions{}, 2, test::linked_always()),
            (std::vector<int64_t>{3, 3}));
}

}  // namespace
}  // namespace nought::linked_models_test
