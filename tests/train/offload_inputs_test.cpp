// The inputs of recomputed blocks in files change no bit of a run: with micro-batches in flight, where ranks share
// matrices, and beside a device that the host has no access to.
#include "support/guarded_context.h"
#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::offload_inputs_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::MeshLayout;

Course course_on(const MeshLayout& layout, const CourseOptions& options, bool guarded) {
  Course course;
  run_ranks(test::contexts_of(layout.ranks(), guarded), [&](Communicator& world, const Context& context) {
    CourseOptions own = options;
    own.context = &context;
    Course of_rank = test::train_in(world, layout, test::dense_mesh_model(4), {0, 2}, own);
    if (world.rank() == 0) course = std::move(of_rank);
  });
  return course;
}

TEST(InputsInFiles, change_no_bit_on_any_mesh) {
  const test::TempFolder folder;
  RecomputeOptions each = Recompute::full, shared = Recompute::full, grouped = Recompute::full, coded = Recompute::full;
  shared.partitioned = true, grouped.checkpoints = 2, coded.fp8 = coded.partitioned = true;
  const MeshLayout alone{}, tensor{.sizes = {.tensor = 2}}, pipeline{.sizes = {.pipeline = 2}};
  for (const auto& [layout, recompute, dtype, guarded] :
       {std::tuple(alone, each, DType::bf16, false),
        {alone, grouped, DType::f16, true},
        {tensor, shared, DType::bf16, false},
        {tensor, coded, DType::bf16, true},
        {MeshLayout{.sizes = {.tensor = 2}, .sequence_parallel = true}, each, DType::f16, false},
        {pipeline, each, DType::bf16, false},
        {MeshLayout{.sizes = {.pipeline = 2}, .stage = 1, .schedule = PipelineSchedule::interleaved}, each, DType::f16,
         false},
        {MeshLayout{.sizes = {.shard = 2}, .stage = 3}, grouped, DType::bf16, false}}) {
    CourseOptions options;
    options.sharding.dtype = options.sharding.gradient_dtype = dtype;
    options.recompute = recompute;
    SCOPED_TRACE(fmt::format("{}, {}, {}, guarded {}", layout.str(), recompute.str(), name_of(dtype), guarded));
    const Course expected = course_on(layout, options, /*guarded=*/false);
    options.recompute.pool = Pool::file, options.recompute.folder = folder.path().string();
    const Course course = course_on(layout, options, guarded);
    EXPECT_EQ(course.losses, expected.losses);
    EXPECT_EQ(course.norms, expected.norms);
    EXPECT_TRUE(course.weights == expected.weights);
    ASSERT_EQ(course.losses.size(), 2u);
  }
}

}  // namespace
}  // namespace nought::offload_inputs_test
