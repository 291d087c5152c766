// Where optimizer states and parameters live changes no bit of runs with pipeline stages and with shared matrices, nor
// of what resumes from their checkpoints.
#include <array>

#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::offload_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::MeshLayout;

ModelConfig llama() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", test::kMeshVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 4},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 16},
                                 {"initializer_range", 0.1}});
}

void expect_same(const Course& course, const Course& expected, size_t first = 0) {
  EXPECT_EQ(course.losses,
            std::vector<double>(expected.losses.begin() + static_cast<std::ptrdiff_t>(first), expected.losses.end()));
  EXPECT_EQ(course.weights, expected.weights);
}

class OffloadRuns : public testing::Test {
 protected:
  /// Options of a run whose states are in files.
  CourseOptions in_files(const CourseOptions& options, int64_t sub_group = 1000) const {
    CourseOptions offloaded = options;
    offloaded.sharding.offload_optimizer = {.home = Pool::file,
                                            .folder = folder_.path().string(),
                                            .sub_group = sub_group,
                                            .reads_ahead = true,
                                            .buffers = 8};
    return offloaded;
  }

  /// The same, and parameters too.
  CourseOptions all_in_files(const CourseOptions& options) const {
    CourseOptions offloaded = in_files(options);
    offloaded.sharding.offload_param = {
        .home = Pool::file, .folder = folder_.path().string(), .buffers = 2, .in_memory = 500};
    return offloaded;
  }

  /// And gradients.
  CourseOptions with_gradients(CourseOptions options, int stage = 3) const {
    options = stage == 3 ? all_in_files(options) : in_files(options);
    options.sharding.offload_optimizer.gradients_in_file = true;
    return options;
  }

  test::TempFolder folder_;
};

TEST_F(OffloadRuns, pipeline_stages_and_shared_matrices_give_the_same_bits) {
  for (const MeshLayout& layout : {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 1},
                                   MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}}) {
    SCOPED_TRACE(layout.str());
    CourseOptions options;
    options.sharding.dtype = options.sharding.gradient_dtype = DType::bf16;
    expect_same(train_on(layout, llama(), {0, 3}, in_files(options)), train_on(layout, llama(), {0, 3}, options));
  }
}

TEST_F(OffloadRuns, parameters_in_files_give_the_same_bits_on_meshes) {
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 3},
        MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}, MeshLayout{.sizes = {.pipeline = 2}, .stage = 3},
        MeshLayout{.sizes = {.replicate = 2, .shard = 2}, .stage = 3},
        MeshLayout{.sizes = {.shard = 4, .host_ranks = 2}, .stage = 3}}) {
    SCOPED_TRACE(layout.str());
    CourseOptions options;
    options.sharding.dtype = options.sharding.gradient_dtype = DType::bf16;
    CourseOptions alone = all_in_files(options);
    alone.sharding.offload_optimizer = {};
    const Course expected = train_on(layout, llama(), {0, 3}, options);
    expect_same(train_on(layout, llama(), {0, 3}, all_in_files(options)), expected);
    expect_same(train_on(layout, llama(), {0, 3}, alone), expected);
  }
}

/// Four micro-batches, some of them under way at once. Where one rank has a segment for itself, whole gradients come
/// and go: those that sums over ranks complete in the end, and those that a schedule forms in two parts.
TEST_F(OffloadRuns, gradients_in_files_give_the_same_bits_on_meshes) {
  int i = 0;
  for (const MeshLayout& layout : {MeshLayout{}, MeshLayout{.sizes = {.shard = 2}, .stage = 3},
                                   MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
                                   MeshLayout{.sizes = {.pipeline = 2}, .stage = 3, .schedule = PipelineSchedule::zbh1},
                                   MeshLayout{.sizes = {.tensor = 2}, .sequence_parallel = true, .stage = 3},
                                   MeshLayout{.sizes = {.shard = 2, .expert = 2}, .stage = 3},
                                   MeshLayout{.sizes = {.replicate = 2, .shard = 2}, .stage = 3}})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(fmt::format("{}, {}", layout.str(), name_of(dtype)));
      CourseOptions options;
      options.sharding.dtype = options.sharding.gradient_dtype = dtype;
      if (i++ % 3 == 0) options.recompute.mode = Recompute::full;
      const ModelConfig config = layout.sizes.expert > 1   ? test::expert_mesh_model()
                                 : layout.sizes.tensor > 1 ? test::dense_mesh_model()
                                                           : llama();
      const Course expected = train_on(layout, config, {0, 2}, options);
      const Course course = train_on(layout, config, {0, 2}, with_gradients(options, layout.stage));
      expect_same(course, expected);
      EXPECT_EQ(course.norms, expected.norms);
    }
}

TEST_F(OffloadRuns, of_other_optimizers_give_the_same_bits_on_meshes) {
  for (const MeshLayout& layout : {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
                                   MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}})
    for (const auto& [method, block] :
         {std::pair(Method(LionOptions{}), int64_t{0}), {MuonOptions{}, 0}, {AdamOptions{.eps = 1e-4}, 64}}) {
      CourseOptions options;
      options.sharding.dtype = options.sharding.gradient_dtype = block > 0 ? DType::f16 : DType::bf16;
      options.sharding.optimizer.method = method, options.sharding.optimizer.state_block = block;
      SCOPED_TRACE(fmt::format("{}, method {}, blocks of {}", layout.str(), method.index(), block));
      expect_same(train_on(layout, llama(), {0, 2}, with_gradients(options, layout.stage)),
                  train_on(layout, llama(), {0, 2}, options));
    }
}

/// Saves with one home and resumes with another, on another number of ranks and at another stage too.
TEST_F(OffloadRuns, resume_with_another_home_stage_and_tile) {
  CourseOptions options;
  options.sharding.dtype = DType::bf16;
  const auto two = [](int stage) { return MeshLayout{.sizes = {.shard = 2}, .stage = stage}; };
  const Course whole = train_on(two(2), llama(), {0, 4}, options);
  const std::array homes{options, in_files(options), with_gradients(options)};
  for (size_t from = 0; from < homes.size(); ++from)
    for (size_t to = 0; to < homes.size(); ++to) {
      if (from == to) continue;
      SCOPED_TRACE(fmt::format("from {} to {}", from, to));
      const test::TempFolder saved;
      CourseOptions first = homes[from], second = homes[to];
      const auto stage = [&](const CourseOptions& with, int other) {
        return with.sharding.offload_param.home == Pool::file ? 3 : other;
      };
      first.saved = second.resumed = saved.path().string();
      train_on(two(stage(first, 2)), llama(), {0, 2}, first);
      expect_same(train_on(two(stage(second, from == 0 ? 3 : 2)), llama(), {2, 4}, second), whole, 2);
      // On one rank: as a run without files resumes there.
      CourseOptions alone = options, alone_in_files = in_files(options);
      alone.resumed = alone_in_files.resumed = saved.path().string();
      expect_same(train_on({}, llama(), {2, 4}, alone_in_files), train_on({}, llama(), {2, 4}, alone));
    }
}

}  // namespace
}  // namespace nought::offload_test
