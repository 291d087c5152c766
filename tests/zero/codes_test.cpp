// Parameters that are kept as codes, on ranks that share them out.
#include "nought/zero/codes.h"

#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/parallel/expert_ranks.h"
#include "nought/parallel/model_ranks.h"
#include "nought/zero/four_bits.h"
#include "nought/zero/sharded_model.h"

namespace nought::codes_test {
namespace {

using testing::HasSubstr;

/// Borders of shards cut through its parameters.
class QuantizedUnits final : public Model {
 public:
  QuantizedUnits() {
    Unit& unit = add_unit("first");
    unit.add("a.weight", {37, 96}, Init::normal(0.5));
    unit.add("norm.weight", {33}, Init::ones(), ParameterRole::norm);
    unit.add("b.weight", {5, 32}, Init::normal(0.001));
    add_unit("second").add("c.weight", {70, 64}, Init::normal(2));
    for (const auto& each : units())
      each->choose_quantized([](const Parameter& parameter) { return parameter.role == ParameterRole::matrix; });
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

/// The codes of a whole parameter, quantized at once.
Tensor expected_values(const Context& context, const Parameter& parameter) {
  const Shape& shape = parameter.placement.global;
  const Tensor x = context.empty(shape, DType::f32);
  InitialState(1).fill(StateKind::master, parameter, {0, x.numel()}, x.flat(0, x.numel()));
  if (!parameter.quantized) return x;
  const Weight weight{context.empty(shape, DType::i8), context.empty(scales_shape(shape), DType::f16)};
  context.run(QuantizeBlocks{.x = x, .codes = weight.values, .scales = weight.scales});
  context.run(DequantizeBlocks{.weight = weight, .x = x});
  return x;
}

TEST(Codes, a_rank_keeps_the_scales_of_its_codes) {
  QuantizedUnits units;
  const Unit& unit = *units.units()[0];
  ASSERT_EQ(unit.segments().size(), 3u);
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Partition codes(unit.segments()[0], ranks), scales(unit.segments()[unit.segments()[0].scales], ranks);
    EXPECT_EQ(codes.shard(), kCodeBlock * scales.shard()) << ranks << " ranks";
    EXPECT_EQ(codes.padded(), kCodeBlock * scales.padded()) << ranks << " ranks";
    EXPECT_GE(codes.padded(), unit.segments()[0].size);
  }
}

TEST(Codes, of_4_bits_are_made_of_blocks_of_which_the_last_may_be_short) {
  QuantizedUnits units;
  const Parameter& parameter = units.units()[0]->parameters().back();  // [5, 32]: two blocks and a half
  const auto memory = Memory::create();
  const Context context = Context::cpu();
  const Tensor all = context.empty({160}, DType::f32);
  InitialState(1).fill(StateKind::master, parameter, {0, 160}, all);
  std::vector<Interval> blocks;
  std::vector<float> read;
  for_each_block(InitialState(1), parameter, {64, 160}, *memory, [&](Interval block, std::span<const float> values) {
    blocks.push_back(block);
    read.insert(read.end(), values.begin(), values.end());
  });
  EXPECT_THAT(blocks, testing::ElementsAre(Interval{64, 128}, Interval{128, 160}));
  EXPECT_EQ(read, all.flat(64, 160).to_vector<float>());
}

NOUGHT_SIZE(medium);
TEST(Codes, are_loaded_and_gathered_at_every_stage) {
  for (const bool training : {true, false})
    for (const int stage : {0, 1, 2, 3})
      for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](Communicator& group, const Context& context) {
          SCOPED_TRACE(fmt::format("stage {}, {} ranks", stage, ranks));
          QuantizedUnits units;
          ShardedModel model(context, group, units, {.policy = Policy::stage(stage), .training = training});
          model.load(InitialState(1));
          for (size_t unit = 0; unit < 2; ++unit)
            model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
              EXPECT_EQ(whole.dtype(), DType::f32);
              EXPECT_EQ(whole.shape(), parameter.shape);
              EXPECT_EQ(whole.to_vector<float>(), expected_values(context, parameter).to_vector<float>())
                  << parameter.name;
            });
        });
}

/// Matrices that ranks share, and experts.
class QuantizedParts final : public Model {
 public:
  explicit QuantizedParts(const Mesh& mesh, const std::vector<int64_t>& fused = {}) {
    const ModelRanks ranks(mesh);
    Unit& unit = add_unit("unit");
    ranks.tensor.add(unit, "rows", {.global = {7, 64}, .dim = 0}, Init::normal(0.5));
    ranks.tensor.add(unit, "columns", {.global = {5, 128}, .dim = 1, .fused = fused}, Init::normal(0.5));
    const ExpertRanks experts(ranks);
    for (int64_t e = 0; e < 3; ++e)
      experts.add_one(unit, fmt::format("{}.up", e), e, 3, {.global = {6, 64}, .dim = 0}, Init::normal(0.5));
    experts.add_all(unit, "down", {.global = {3, 4, 64}, .dim = 2}, Init::normal(0.5));
    unit.choose_quantized([](const Parameter&) { return true; });
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

TEST(Codes, of_parts_are_those_of_one_rank) {
  for (const GridSizes sizes : std::vector<GridSizes>{{.tensor = 2, .expert_tensor = 2},
                                                      {.shard = 2, .expert = 2},
                                                      {.shard = 3, .expert = 3},
                                                      {.replicate = 2, .shard = 2, .expert = 2},
                                                      {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2}})
    for (const int stage : {0, 3})
      run_ranks(Grid(sizes).ranks(), [&](Communicator& world, const Context& context) {
        const Mesh mesh(world, sizes);
        QuantizedParts parts(mesh);
        ShardedModel model(context, mesh, parts, {.policy = Policy::stage(stage), .training = false});
        model.load(InitialState(1));
        model.with_parameters(0, [&](const Parameter& parameter, const Tensor& whole) {
          EXPECT_EQ(whole.to_vector<float>(), expected_values(context, parameter).to_vector<float>())
              << parameter.name << ", tensor " << sizes.tensor << ", expert " << sizes.expert;
        });
      });
}

TEST(Codes, blocks_that_ranks_would_share_are_refused) {
  run_ranks(2, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = 2});
    QuantizedParts parts(mesh, {96, 32});  // a rank has 48 and 16 columns
    ShardedModel model(context, mesh, parts, {.training = false});
    EXPECT_THAT(test::message_of<ConfigError>([&] { model.load(InitialState(1)); }),
                HasSubstr("parameter columns cannot be kept quantized to 8 bits: ranks share its rows of 128"));
  });
}

TEST(Codes, take_a_byte_an_element_and_two_a_block) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    for (const int stage : {0, 3}) {
      QuantizedUnits units;
      const int64_t before = context.memory->ledger().current(Category::parameters);
      const ShardedModel model(context, group, units, {.policy = Policy::stage(stage), .training = false});
      int64_t expected = 0;
      for (const auto& unit : units.units())
        for (const Segment& segment : unit->segments()) {
          const Partition partition(segment, 2);
          const int64_t kept = stage == 3 ? partition.shard() : partition.padded();
          expected += kept * size_of(segment.dtype.value_or(DType::f32));
        }
      EXPECT_EQ(context.memory->ledger().current(Category::parameters) - before, expected) << "stage " << stage;
    }
  });
}

struct Spoiled final : StateSource {
  void fill(StateKind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      for (int64_t i = 0; i < interval.size(); ++i)
        values.data<float>()[i] = parameter.name == "b.weight" && interval.begin + i == 70 ? HUGE_VALF : 1.0F;
    });
  }
};

TEST(Codes, a_value_that_they_cannot_hold_is_an_error_by_name) {
  run_ranks(1, [](Communicator& group, const Context& context) {
    QuantizedUnits units;
    ShardedModel model(context, group, units, {.training = false});
    EXPECT_THAT(test::message_of<Error>([&] { model.load(Spoiled()); }), HasSubstr("b.weight holds a value"));
    const Parameter& parameter = units.units()[0]->parameters().back();
    const auto read = [&](Interval elements) {
      for_each_block(Spoiled(), parameter, elements, *context.memory, [](Interval, std::span<const float>) {});
    };
    EXPECT_NO_THROW(read({0, 64}));
    EXPECT_THAT(test::message_of<Error>([&] { read({64, 128}); }), HasSubstr("b.weight holds a value"));
  });
}

}  // namespace
}  // namespace nought::codes_test
