// Training for few bits: what passes compute with, that no layout changes it, and that folders in codes have it.
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/zero/qat_weights.h"
#include "nought/zero/whole_tensor.h"
#include "nought/zero/working_weights.h"

namespace nought::qat_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;
using test::WholeTensors;
using testing::HasSubstr;

constexpr QatMode kModes[] = {QatMode::int4, QatMode::int8,     QatMode::int8_int4,
                              QatMode::fp8,  QatMode::fp8_int4, QatMode::mxfp4};

TrainingCase trained_for(const Qat& qat, const test::MeshLayout& mesh = {}) {
  TrainingCase each =
      test::learning(test::small_model("grouped_heads", 3, {{"hidden_size", 64}, {"intermediate_size", 96}}), mesh);
  each.steps.end = 4, each.lr = 5e-3;
  each.rows.of_step = 12, each.rows.length = 16;
  each.settings.qat = qat;
  each.fp8.inputs = qat.inputs();
  return each;
}

TrainingCase plain(TrainingCase each) {
  each.settings.qat.reset(), each.fp8.inputs.reset();
  return each;
}

/// What passes compute with, whole.
WholeTensors computed_with(TrainingRank& rank) {
  WholeTensors all;
  for (const auto& unit : rank.decoder.units()) {
    if (unit->elsewhere()) continue;
    rank.model.before_forward(*unit);
    for (const Parameter& parameter : unit->parameters()) {
      const Tensor flat = rank.model.values(*unit, parameter.segment).flat(parameter.range.begin, parameter.range.end);
      all[parameter.name] =
          rank.context.on_host(whole_tensor(rank.context, rank.mesh, parameter, flat)).to_vector<float>();
    }
    rank.model.after_forward(*unit);
  }
  return all;
}

/// The stored weights on the grids that folders have.
WholeTensors expected_of(TrainingRank& rank, const Qat& qat) {
  WholeTensors all = test::whole_weights(rank.model);
  for (const ChangedWeight& weight : qat_weights(qat, rank.decoder)) {
    const Parameter& parameter = rank.decoder.units()[weight.unit]->parameters()[weight.parameter];
    const Shape& shape = parameter.placement.global;
    const Context context = Context::reference();
    const Tensor values = context.upload<float>(shape, all.at(parameter.name));
    weight.change->apply(context, parameter, 0, values);
    all.at(parameter.name) = values.to_vector<float>();
  }
  return all;
}

TEST(Qat, passes_compute_with_values_of_codes_and_files_have_stored_ones) {
  for (const Qat& qat : {Qat{.mode = QatMode::int4}, Qat{.mode = QatMode::int8}, Qat{.mode = QatMode::fp8}})
    for (const test::MeshLayout& mesh : {sharded(1, 0), sharded(2, 3), test::MeshLayout{.sizes = {.tensor = 2}},
                                         test::MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}})
      trained_for(qat, mesh).on_ranks([&](TrainingRank& rank) {
        const WholeTensors expected = expected_of(rank, qat), stored = test::whole_weights(rank.model);
        const WholeTensors computed = computed_with(rank);
        test::expect_same_bits(computed, expected);
        for (const char* name : {"model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"})
          EXPECT_NE(computed.at(name), stored.at(name)) << name;
        for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"})
          EXPECT_EQ(computed.at(name), stored.at(name)) << name;
      });
}

TEST(Qat, stages_agree_bit_for_bit_in_every_mode) {
  for (const QatMode mode : kModes) {
    const TrainingCase each = trained_for({.mode = mode}, sharded(2, 0)).in(DType::bf16);
    const TrainingResult result = test::same_at_every_stage(each);
    EXPECT_NE(result.losses[0], plain(each).run().losses[0]) << name_of(mode);
  }
}

NOUGHT_SIZE(medium);
TEST(Qat, recompute_offload_and_the_guarded_device_change_no_bit) {
  const test::TempFolder folder;
  for (const QatMode mode : {QatMode::int8_int4, QatMode::fp8}) {
    const TrainingCase each = trained_for({.mode = mode}, sharded(2, 3));
    const TrainingResult result = each.run();
    TrainingCase recomputed = each, offloaded = each, guarded = each;
    recomputed.recompute = Recompute::full;
    offloaded.settings.offload_param = {.tier = {Pool::file, folder.path().string()}, .in_memory = 3000};
    guarded.guarded = true;
    for (const TrainingCase& other : {recomputed, offloaded, guarded}) expect_same_bits(other.run(), result);
  }
}

/// Rounding makes a step of what was a last bit, so that only first steps are compared.
TEST(Qat, meshes_compute_the_first_step_alike) {
  for (const QatMode mode : kModes) {
    TrainingCase one = trained_for({.mode = mode});
    one.steps.end = 1;
    const TrainingResult alone = one.run();
    for (const GridSizes& sizes :
         {GridSizes{.tensor = 2}, GridSizes{.pipeline = 2}, GridSizes{.tensor = 2, .pipeline = 2}}) {
      TrainingCase each = one;
      each.mesh.sizes = sizes;
      expect_losses_within(each.run(), alone, mode == QatMode::int8_int4 || mode == QatMode::fp8_int4 ? 1e-3 : 1e-4);
    }
  }
}

/// The inputs of the weights' gradient are those of the product, and what flows back passes straight through: with
/// weights that are on their grid, rounding inputs to 8 bits changes gradients by about what it changes inputs by.
TEST(Qat, rounded_inputs_change_little_and_something) {
  TrainingCase each = trained_for({.mode = QatMode::int8_int4});
  each.steps.end = 1;
  TrainingCase weights_alone = each;
  weights_alone.fp8.inputs.reset();
  const TrainingResult rounded = each.run(), unrounded = weights_alone.run();
  EXPECT_NE(rounded.losses[0], unrounded.losses[0]);
  EXPECT_NEAR(rounded.losses[0], unrounded.losses[0], 2e-2 * unrounded.losses[0]);
  EXPECT_NEAR(rounded.norms[0], unrounded.norms[0], 5e-2 * unrounded.norms[0]);
}

TEST(Qat, before_the_start_a_run_keeps_its_bits) {
  TrainingCase each = trained_for({.mode = QatMode::int8_int4, .start_step = 2});
  const TrainingResult late = each.run(), without = plain(each).run();
  EXPECT_EQ(late.losses[1], without.losses[1]);
  EXPECT_NE(late.losses[2], without.losses[2]);
}

TEST(Qat, a_resumed_run_goes_on_to_the_bit_at_another_stage) {
  TrainingCase each = trained_for({.mode = QatMode::int8_int4, .start_step = 1}, sharded(2, 2)), other = each;
  each.steps.end = other.steps.end = 6;
  other.mesh.stage = 3;
  expect_same_bits(test::resumed_at(3, each, other), each.run(), 3);
}

TEST(Qat, says_which_layers_and_refuses_groups_that_do_not_divide) {
  Decoder decoder(trained_for({}).model);
  ShardingOptions options;
  EXPECT_FALSE(options.changes_weights());
  EXPECT_TRUE(describe_changed_weights(options, decoder).empty());
  options.qat = Qat{.mode = QatMode::int8_int4};
  EXPECT_TRUE(options.changes_weights());
  EXPECT_THAT(describe_changed_weights(options, decoder),
              testing::ElementsAre(describe_qat_weights(*options.qat, decoder)));
  EXPECT_THAT(describe_qat_weights(*options.qat, decoder),
              HasSubstr("21 layers, model.layers.0.self_attn.q_proj to model.layers.2.mlp.down_proj; export: nought "
                        "quantize MODEL OUT --format compressed-tensors --group-size 32"));
  EXPECT_THAT(test::message_of<ConfigError>([&] { qat_weights({.group_size = 48}, decoder); }),
              HasSubstr("groups of 48 do not divide the 64 columns of model.layers.0.self_attn.q_proj.weight: choose "
                        "another training.qat_group_size"));
}

/// Activations of chosen layers, DeepSpeed's grids.
TEST(InputRounding, groups_choose_layers_by_name) {
  const auto rounding = [](std::vector<InputGroup> groups) {
    TrainingCase each = plain(trained_for({}));
    each.steps.end = 2;
    each.fp8.inputs = InputRounding{.grid = RowGrid::symmetric, .section = "groups", .groups = std::move(groups)};
    return each;
  };
  const TrainingResult all = rounding({{"a", {"proj"}, 8}}).run(), mlp = rounding({{"a", {"mlp"}, 8}}).run(),
                       four = rounding({{"a", {"mlp"}, 4}}).run();
  const double exact = plain(trained_for({})).run().losses[0];
  EXPECT_NE(all.losses[0], mlp.losses[0]);
  EXPECT_LT(std::abs(mlp.losses[0] - exact), std::abs(four.losses[0] - exact));
  const auto error = [&](std::vector<InputGroup> groups) {
    return test::message_of<ConfigError>([&] {
      const TrainingCase each = rounding(std::move(groups));
      const Decoder decoder(each.model, {}, each.fp8);
      decoder.products()->layers_by_group();
    });
  };
  EXPECT_THAT(error({{"a", {"q_porj"}, 8}}), HasSubstr("groups.a.modules: \"q_porj\" matches no linear layer"));
  EXPECT_THAT(error({{"a", {"q_proj"}, 8}}), HasSubstr("have the same inputs, and one of them alone is in a group"));
  EXPECT_THAT(error({{"a", {"proj"}, 8}, {"b", {"down"}, 4}}), HasSubstr("which is in a already"));
}

}  // namespace
}  // namespace nought::qat_test
