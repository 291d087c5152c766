// Units in tiles whose parameters, gradients and optimizer states are in files: the bits of tiles in memory, and the
// gradients of whole Units but for rounding.
#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::offloaded_tiles_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::MeshLayout;
using test::train_on;

struct Family {
  const char* name;
  ModelConfig config;
};

/// A tied table; experts beside a shared one; biases and learned positions.
std::vector<Family> families() {
  return {{"dense", test::dense_mesh_model()},
          {"experts", test::expert_mesh_model()},
          {"biases", test::biased_mesh_model()}};
}

CourseOptions with_tiles(int64_t tiles, Recompute mode = Recompute::none) {
  CourseOptions options{.recompute = mode};
  options.recompute.unit_tiles = tiles;
  return options;
}

class OffloadedTiles : public testing::Test {
 protected:
  CourseOptions in_files(CourseOptions options, bool gradients) const {
    options.sharding.offload_optimizer = {.home = Pool::file,
                                          .folder = folder_.path().string(),
                                          .sub_group = 700,
                                          .reads_ahead = true,
                                          .buffers = 8,
                                          .gradients_in_file = gradients};
    options.sharding.offload_param = {.home = Pool::file, .folder = folder_.path().string(), .buffers = 2};
    return options;
  }
  test::TempFolder folder_;
};

TEST_F(OffloadedTiles, have_the_bits_of_tiles_in_memory) {
  for (const Family& family : families())
    for (const int ranks : {1, 2})
      for (const Recompute mode : {Recompute::none, Recompute::full}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, recompute {}", family.name, ranks, name_of(mode)));
        const MeshLayout layout{.sizes = {.shard = ranks}, .stage = 3};
        const CourseOptions tiled = with_tiles(3, mode);
        const Course expected = train_on(layout, family.config, {0, 2}, tiled);
        const Course course = train_on(layout, family.config, {0, 2}, in_files(tiled, mode == Recompute::none));
        EXPECT_EQ(course.losses, expected.losses);
        EXPECT_EQ(course.norms, expected.norms);
        EXPECT_TRUE(course.weights == expected.weights);
      }
}

/// By name of the tensor, as checkpoints know it.
using Gradients = std::map<std::string, std::vector<float>>;

Gradients gradients_of(const MeshLayout& layout, const ModelConfig& config, const CourseOptions& options) {
  Gradients all;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    test::Sharing rank = layout.rank(world, config, options.sharding, {}, options.recompute);
    rank.model.load(InitialState(3));
    Engine engine(rank.model);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < 2; ++i)
      batches.push_back(test::mesh_rows(*rank.context.memory, config, 0, i, world.rank(), world.size()));
    engine.accumulate(batches, 60);
    for (size_t unit = 0; unit < rank.decoder.units().size(); ++unit)
      rank.model.with_gradients(unit, [&](const Parameter& parameter, const Tensor& gradient) {
        const std::vector<float> values = rank.context.to_host<float>(gradient);
        if (world.rank() == 0) all[parameter.name] = values;
      });
    rank.model.discard_gradients();
  });
  return all;
}

/// The norm of a tensor.
double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

TEST_F(OffloadedTiles, form_each_gradient_as_whole_units_do) {
  for (const Family& family : families())
    for (const int ranks : {1, 2}) {
      const MeshLayout layout{.sizes = {.shard = ranks}, .stage = 3};
      const Gradients whole = gradients_of(layout, family.config, {});
      const Gradients tiled = gradients_of(layout, family.config, in_files(with_tiles(4, Recompute::full), true));
      ASSERT_EQ(tiled.size(), whole.size());
      ASSERT_GT(whole.size(), 10u);
      for (const auto& [name, values] : tiled) {
        ASSERT_TRUE(whole.contains(name)) << name;
        std::vector<float> difference = whole.at(name);
        ASSERT_EQ(difference.size(), values.size()) << name;
        for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
        EXPECT_LE(norm_of(difference), 1e-5 * norm_of(values)) << family.name << ", " << ranks << " ranks: " << name;
      }
    }
}

}  // namespace
}  // namespace nought::offloaded_tiles_test
