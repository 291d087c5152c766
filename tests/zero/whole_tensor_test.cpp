// Parameters that ranks hold in parts: what they hold makes the global tensors, whatever the mesh.
#include "nought/zero/whole_tensor.h"

#include "support/cut_units.h"
#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::whole_tensor_test {
namespace {

using test::cut_gradient;
using test::CutUnits;
using test::message_of;
using testing::HasSubstr;

std::vector<GridSizes> all_meshes() {
  std::vector<GridSizes> meshes{
      {.tensor = 2}, {.tensor = 3}, {.shard = 2}, {.shard = 2, .tensor = 2}, {.shard = 2, .context = 2, .tensor = 2}};
  meshes.insert(meshes.end(), test::kExpertMeshes.begin(), test::kExpertMeshes.end());
  return meshes;
}

/// Calls body(mesh, context, options) in every rank of every mesh, at stages 0 and 3.
void for_each_mesh(const std::function<void(const Mesh&, const Context&, const ShardedModel::Options&)>& body) {
  for (const GridSizes& sizes : all_meshes())
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(fmt::format("{}, stage {}", test::str(sizes), stage));
      run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
        body(Mesh(world, sizes), context, {.policy = Policy::stage(stage)});
      });
    }
}

NOUGHT_SIZE(medium);
TEST(WholeTensor, every_mesh_starts_with_the_values_of_one_rank) {
  const Context alone = Context::reference();
  for_each_mesh([&](const Mesh& mesh, const Context& context, const ShardedModel::Options& options) {
    CutUnits units(mesh);
    ShardedModel model(context, mesh, units, options);
    model.load(InitialState(5));
    for (size_t unit = 0; unit < units.units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
        const Shape& global = parameter.placement.global;
        ASSERT_EQ(whole.shape(), global);
        const Tensor expected = alone.empty({global.numel()}, DType::f32);
        InitialState(5).fill(StateKind::master, parameter, Interval{0, global.numel()}, expected);
        EXPECT_EQ(whole.to_vector<float>(), expected.to_vector<float>()) << parameter.name;
      });
  });
}

NOUGHT_SIZE(medium);
TEST(WholeTensor, gradients_are_whole_and_the_norm_counts_each_element_once) {
  for_each_mesh([](const Mesh& mesh, const Context& context, const ShardedModel::Options& options) {
    CutUnits units(mesh);
    ShardedModel model(context, mesh, units, options);
    model.load(InitialState(5));
    const std::vector<double> squares = test::walk_back(model, 1);
    for (size_t unit = 0; unit < units.units().size(); ++unit) {
      const std::vector<Tensor> gradients = model.gather_gradients(unit);
      double expected = 0;
      for (size_t p = 0; p < gradients.size(); ++p) {
        const Parameter& parameter = units.units()[unit]->parameters()[p];
        ASSERT_EQ(gradients[p].shape(), parameter.placement.global);
        for (int64_t i = 0; i < gradients[p].numel(); ++i) {
          const float value = cut_gradient(parameter.name, i, 1);
          ASSERT_EQ(gradients[p].data<float>()[i], value) << parameter.name << " " << i;
          expected += static_cast<double>(value) * value;
        }
      }
      EXPECT_NEAR(squares[unit], expected, 1e-9 * expected);
    }
    model.discard_gradients();
  });
}

NOUGHT_SIZE(medium);
TEST(WholeTensor, lamb_goes_by_the_norm_of_the_whole_parameter) {
  const auto trained = [](const Mesh& mesh, const Context& context, ShardedModel::Options options) {
    options.optimizer = {.method = LambOptions{}};
    CutUnits units(mesh);
    ShardedModel model(context, mesh, units, options);
    model.load(InitialState(5));
    for (int step = 0; step < 3; ++step) {
      test::walk_back(model, step);
      model.update(/*lr=*/0.1, /*gradient_scale=*/1);
    }
    return test::whole_weights(model);
  };
  std::map<std::string, std::vector<float>> expected;
  run_ranks(1, [&](Communicator& world, const Context& context) { expected = trained(world, context, {}); });
  for_each_mesh([&](const Mesh& mesh, const Context& context, const ShardedModel::Options& options) {
    for (const auto& [name, values] : trained(mesh, context, options)) {
      ASSERT_EQ(values.size(), expected.at(name).size());
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected.at(name)[i], 1e-6) << name << " " << i;
    }
  });
}

NOUGHT_SIZE(medium);
TEST(WholeTensor, what_is_cut_along_an_axis_lies_in_a_segment_of_its_own) {
  run_ranks(2, [](Communicator& world, const Context&) {
    const CutUnits units(Mesh(world, {.tensor = 2}));
    const Unit& first = *units.units()[0];
    ASSERT_EQ(first.segments().size(), 2u);
    EXPECT_EQ(first.segments()[0].parameters, (std::vector<size_t>{0, 2}));
    EXPECT_EQ(first.segments()[1].parameters, (std::vector<size_t>{1}));
    EXPECT_EQ(first.segments()[0].cut_along, Axes{Axis::tensor});
  });
}

/// A model of one parameter.
struct OneUnit final : Model {
  OneUnit(Shape shape, Placement placement) {
    add_unit("unit").add("weight", shape, Init::zeros(), ParameterOptions{.placement = std::move(placement)});
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

NOUGHT_SIZE(medium);
TEST(WholeTensor, a_placement_that_the_mesh_does_not_make_is_refused) {
  run_ranks(2, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = 2});
    OneUnit whole({4, 2}, {{4, 2}, {{.axis = Axis::tensor}}});
    EXPECT_THAT(message_of<ShapeError>([&] { ShardedModel(context, mesh, whole, {}); }),
                HasSubstr("parameter weight has shape [4, 2]; by its placement this rank holds [2, 2] of [4, 2]"));
    OneUnit sharded({2, 2}, {{4, 2}, {{.axis = Axis::shard}}});
    EXPECT_THAT(message_of<ConfigError>([&] { ShardedModel(context, mesh, sharded, {}); }),
                HasSubstr("parameter weight is cut along the axis shard"));
  });
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2});
    OneUnit shared({2, 2}, {{4, 2}, {{.axis = Axis::expert_tensor}}});
    EXPECT_THAT(message_of<ConfigError>([&] { ShardedModel(context, mesh, shared, {}); }),
                HasSubstr("parameter weight is cut along the axis expert_tensor alone"));
  });
}

}  // namespace
}  // namespace nought::whole_tensor_test
