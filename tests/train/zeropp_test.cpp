// Runs whose ranks keep second copies, add in hops or send codes follow plain ones: to the bit, to the rounding of
// another order, or within what codes lose. Files hold the values.
#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::zeropp_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::MeshLayout;
using test::train_on;

MeshLayout stage_3(const GridSizes& sizes) { return {.sizes = sizes, .stage = 3}; }

TEST(ZeroPlusPlus, second_copies_among_neighbours_change_no_bit) {
  const ModelConfig config = test::expert_mesh_model();
  CourseOptions narrow, tiled;
  narrow.sharding.dtype = DType::bf16;
  narrow.sharding.overlap = false;
  const std::vector<std::pair<GridSizes, CourseOptions>> runs{{{.shard = 4}, {}},
                                                              {{.shard = 4}, narrow},
                                                              {{.replicate = 2, .shard = 4}, {}},
                                                              {{.shard = 4, .tensor = 2, .expert_tensor = 2}, {}},
                                                              {{.shard = 4, .pipeline = 2}, {}},
                                                              {{.shard = 4, .expert = 2}, {}}};
  for (const auto& [sizes, options] : runs) {
    GridSizes kept = sizes;
    kept.secondary = 2, kept.host_ranks = 2 * sizes.tensor;
    SCOPED_TRACE(stage_3(sizes).str());
    const Course plain = train_on(stage_3(sizes), config, {0, 3}, options),
                 course = train_on(stage_3(kept), config, {0, 3}, options);
    EXPECT_EQ(course.losses, plain.losses);
    EXPECT_EQ(course.norms, plain.norms);
    EXPECT_EQ(course.weights, plain.weights);
  }
}

TEST(ZeroPlusPlus, sums_of_two_hops_are_those_of_one_rank) {
  CourseOptions hops;
  hops.sharding.codes.gradient_bits = 32;
  const ModelConfig dense = test::dense_mesh_model(), experts = test::expert_mesh_model();
  const Course alone = train_on({}, dense, {0, 6}), with_experts = train_on({}, experts, {0, 6});
  expect_close(train_on(stage_3({.shard = 4, .host_ranks = 2}), dense, {0, 6}, hops), alone);
  expect_close(train_on(stage_3({.shard = 4}), dense, {0, 6}, hops), alone);
  expect_close(train_on(stage_3({.replicate = 2, .shard = 4, .host_ranks = 2}), dense, {0, 6}, hops), alone);
  expect_close(train_on(stage_3({.shard = 4, .expert = 2, .host_ranks = 2}), experts, {0, 6}, hops), with_experts);
}

struct Part {
  const char* name;
  WireOptions codes;
  int secondary = 1;
};
const std::vector<Part> kParts{{"weights", {.weight_bits = 8}},
                               {"gradients", {.gradient_bits = 4}},
                               {"feedback", {.gradient_bits = 4, .feedback = ErrorFeedback{}}},
                               {"all", {.weight_bits = 8, .gradient_bits = 4, .feedback = ErrorFeedback{}}, 2}};

TEST(ZeroPlusPlus, losses_stay_within_one_percent_of_plain_ones) {
  const ModelConfig config = test::dense_mesh_model();
  const Course plain = train_on(stage_3({.shard = 4}), config, {0, 20});
  for (const Part& part : kParts) {
    CourseOptions options;
    options.sharding.codes = part.codes;
    const Course course =
        train_on(stage_3({.shard = 4, .host_ranks = 2, .secondary = part.secondary}), config, {0, 20}, options);
    EXPECT_NE(course.losses, plain.losses) << part.name << ": codes were sent";
    for (size_t step = 0; step < plain.losses.size(); ++step)
      ASSERT_NEAR(course.losses[step], plain.losses[step], 0.01 * plain.losses[step]) << part.name << ", step " << step;
  }
}

/// In buckets, without overlap, with parameters in files: what the program does later changes nothing.
TEST(ZeroPlusPlus, codes_are_the_same_whenever_they_are_sent) {
  const ModelConfig config = test::dense_mesh_model();
  CourseOptions options;
  options.sharding.codes = {.weight_bits = 8, .gradient_bits = 4, .feedback = ErrorFeedback{}};
  const MeshLayout layout = stage_3({.shard = 4, .host_ranks = 2});
  const Course expected = train_on(layout, config, {0, 3}, options);
  CourseOptions in_turn = options, in_files = options;
  in_turn.sharding.overlap = false;
  const test::TempFolder folder;
  in_files.sharding.offload_param = {.home = Pool::file, .folder = folder.path().string()};
  in_files.sharding.offload_param.in_memory = 0;
  for (const CourseOptions& each : {options, in_turn, in_files}) {
    const Course course = train_on(layout, config, {0, 3}, each);
    EXPECT_EQ(course.losses, expected.losses);
    EXPECT_EQ(course.weights, expected.weights);
  }
}

TEST(ZeroPlusPlus, checkpoints_and_exports_hold_the_values) {
  const ModelConfig config = test::dense_mesh_model();
  const test::TempFolder folder;
  CourseOptions options;
  options.sharding.codes.weight_bits = 8;
  options.saved = folder.path().string();
  const Course course = train_on(stage_3({.shard = 4, .secondary = 2}), config, {0, 2}, options);
  CourseOptions alone;
  alone.resumed = options.saved;
  EXPECT_EQ(train_on({}, config, {2, 2}, alone).weights, course.weights);
}

/// What was lost is not lost with the run: with errors that begin anew the rest of it would be another.
TEST(ZeroPlusPlus, errors_are_kept_in_checkpoints) {
  const ModelConfig config = test::dense_mesh_model();
  const MeshLayout layout = stage_3({.shard = 4, .host_ranks = 2});
  const test::TempFolder folder;
  CourseOptions options;
  options.sharding.codes = {.gradient_bits = 4, .feedback = ErrorFeedback{.beta = 0.8, .reset = 10}};
  const Course whole = train_on(layout, config, {0, 5}, options);
  CourseOptions first = options, second = options;
  first.saved = second.resumed = folder.path().string();
  train_on(layout, config, {0, 3}, first);
  const Course rest = train_on(layout, config, {3, 5}, second);
  EXPECT_EQ(rest.losses, (std::vector<double>{whole.losses.begin() + 3, whole.losses.end()}));
  EXPECT_EQ(rest.norms, (std::vector<double>{whole.norms.begin() + 3, whole.norms.end()}));
  EXPECT_EQ(rest.weights, whole.weights);
}

TEST(ZeroPlusPlus, rows_that_go_to_experts_as_codes_follow_those_that_go_as_they_are) {
  ModelConfig config = test::expert_mesh_model();
  const MeshLayout layout = stage_3({.shard = 4, .expert = 4});
  const Course plain = train_on(layout, config, {0, 10});
  config.experts->quantized_dispatch = true;
  const Course course = train_on(layout, config, {0, 10});
  EXPECT_NE(course.losses, plain.losses) << "codes were sent";
  for (size_t step = 0; step < plain.losses.size(); ++step)
    ASSERT_NEAR(course.losses[step], plain.losses[step], 0.01 * plain.losses[step]) << step;
}

TEST(ZeroPlusPlus, below_stage_3_codes_are_refused) {
  CourseOptions options;
  options.sharding.codes.weight_bits = 8;
  run_ranks(2, [&](Communicator& world) {
    const MeshLayout layout{.sizes = {.shard = 2}, .stage = 2};
    EXPECT_THROW(layout.rank(world, test::dense_mesh_model(), options.sharding), ConfigError);
  });
}

}  // namespace
}  // namespace nought::zeropp_test
