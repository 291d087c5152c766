// Training over the links of devices: the bits that the host's way has, whatever the layout; and a host that waits for
// several ranks no more often than for one.
#include <thread>

#include "cuda/linked_ranks.h"
#include "support/mesh_runs.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/device.h"

namespace nought::linked_models_test {
namespace {

/// Two steps of two micro-batches.
test::Course course_on(const test::MeshLayout& layout, const ModelConfig& config, const LinkOptions& links,
                       int64_t accumulation = 1) {
  test::Course course;
  const auto body = [&](Communicator& world, const Context& context) {
    test::CourseOptions options;
    options.accumulation = accumulation;
    options.context = &context;
    test::Course of_rank = test::train_in(world, layout, config, {0, 2}, options);
    if (world.rank() == 0) course = std::move(of_rank);
  };
  EXPECT_TRUE(test::run_linked(layout.ranks(), body, links));
  return course;
}

void expect_same_bits(const test::Course& course, const test::Course& other) {
  EXPECT_FALSE(course.losses.empty());
  EXPECT_EQ(course.losses, other.losses);
  EXPECT_EQ(course.norms, other.norms);
  EXPECT_EQ(course.weights, other.weights);
}

TEST(LinkedModels, stages_have_the_bits_that_they_have_through_the_host) {
  NOUGHT_NEEDS_DEVICES(3);
  const ModelConfig config = test::dense_mesh_model();
  const test::Course expected = course_on({.sizes = {.shard = 2}, .stage = 0}, config, test::not_linked());
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_same_bits(course_on({.sizes = {.shard = 2}, .stage = stage}, config, test::linked_always()), expected);
  }
}

TEST(LinkedModels, experts_matrices_layers_and_replicas_have_the_bits_that_they_have_through_the_host) {
  NOUGHT_NEEDS_DEVICES(4);
  const auto expect_same = [](std::string_view what, const test::MeshLayout& layout, const ModelConfig& config) {
    SCOPED_TRACE(what);
    const int64_t micro_batches = layout.sizes.pipeline;
    expect_same_bits(course_on(layout, config, test::linked_always(), micro_batches),
                     course_on(layout, config, test::not_linked(), micro_batches));
  };
  const ModelConfig dense = test::dense_mesh_model(), experts = test::expert_mesh_model();
  expect_same("tensor", {.sizes = {.tensor = 2}}, dense);
  expect_same("pipeline", {.sizes = {.pipeline = 2}}, dense);
  expect_same("experts", {.sizes = {.shard = 2, .expert = 2}, .stage = 2}, experts);
  expect_same("replicas of shards", {.sizes = {.replicate = 2, .shard = 2}, .stage = 3}, dense);
}

TEST(LinkedModels, sums_of_the_library_train_as_those_of_one_rank_do) {
  NOUGHT_NEEDS_DEVICES(4);
  const ModelConfig config = test::dense_mesh_model();
  const test::Course alone = course_on({}, config, {});
  test::expect_close(course_on({.sizes = {.shard = 4}, .stage = 3}, config, test::linked_with_library_sums()), alone);
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
            batches.push_back(test::mesh_rows(*context.memory, config, step, i, world.rank(), 4));
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
    return waits_of_steps(test::dense_mesh_model(), method, stage, links);
  };
  for (const int stage : {0, 2, 3}) EXPECT_EQ(waits(AdamOptions{}, stage, test::linked_always()), once) << stage;
  EXPECT_EQ(waits(LambOptions{}, 2, test::linked_always()), once);
  EXPECT_EQ(waits(MuonOptions{}, 3, test::linked_always()), once);
  for (const int64_t each : waits(AdamOptions{}, 3, test::not_linked())) EXPECT_GT(each, 4) << "the counter sees them";
}

TEST(LinkedTransfers, each_layer_of_experts_waits_once_more_in_each_forward_pass) {
  NOUGHT_NEEDS_DEVICES(2);
  EXPECT_EQ(waits_of_steps(test::expert_mesh_model(), AdamOptions{}, 2, test::linked_always()),
            (std::vector<int64_t>{3, 3}));
}

}  // namespace
}  // namespace nought::linked_models_test
