// Training with rounded weights: what passes compute with, and that no layout changes it.
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/zero/rounded_weights.h"
#include "nought/zero/whole_tensor.h"

namespace nought::weight_rounding_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;
using test::WholeTensors;
using testing::HasSubstr;

WeightGroup layers(const std::string& pattern, int start_bits, int target_bits) {
  return {.name = pattern,
          .modules = {pattern},
          .bits = {.start_bits = start_bits, .target_bits = target_bits, .period = 2}};
}

/// Matrices of attention fall from 6 to 4 bits, those of the MLP are ternary, and tables have 5 bits.
WeightQuantization some_layers() {
  return {.quantize_groups = 4,
          .groups = {layers("self_attn\\.", 6, 4), layers("mlp\\.", 2, 2), layers("embed_tokens$", 5, 5)}};
}

TrainingCase rounded(const WeightQuantization& quantization = some_layers(), const test::MeshLayout& mesh = {}) {
  TrainingCase each =
      test::learning(test::small_model("grouped_heads", 3, {{"hidden_size", 48}, {"intermediate_size", 80}}), mesh);
  each.steps.end = 4, each.lr = 5e-3;
  each.rows.of_step = 12, each.rows.length = 16;
  each.settings.weight_quantization = quantization;
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

/// The weights with which a step computes that comes after no update.
WholeTensors expected_of(TrainingRank& rank, const WeightQuantization& quantization) {
  WholeTensors all = test::whole_weights(rank.model);
  for (const RoundedWeight& weight : rounded_weights(quantization, rank.decoder)) {
    const Parameter& parameter = rank.decoder.units()[weight.unit]->parameters()[weight.parameter];
    std::vector<float>& values = all.at(parameter.name);
    const auto rounding = quantization.rounding_at(quantization.groups[weight.group], 0);
    if (rounding) round_weights(*rounding, weight.pieces, std::vector<float>(values), values);
  }
  return all;
}

TEST(WeightRounding, passes_compute_with_rounded_weights_and_files_have_stored_ones) {
  for (const test::MeshLayout& mesh :
       {sharded(1, 0), sharded(2, 1), sharded(2, 3), test::MeshLayout{.sizes = {.tensor = 2}},
        test::MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}})
    rounded(some_layers(), mesh).on_ranks([&](TrainingRank& rank) {
      const WholeTensors expected = expected_of(rank, some_layers()), stored = test::whole_weights(rank.model);
      const WholeTensors computed = computed_with(rank);
      test::expect_same_bits(computed, expected);
      for (const char* name :
           {"model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.up_proj.weight", "model.embed_tokens.weight"})
        EXPECT_NE(computed.at(name), stored.at(name)) << name;
      EXPECT_EQ(computed.at("lm_head.weight"), stored.at("lm_head.weight"));
    });
}

/// The gradient is that of a model whose stored weights are the rounded ones.
TEST(WeightRounding, gradients_pass_straight_through) {
  const WeightQuantization quantization = some_layers();
  TrainingCase plain = rounded(quantization);
  plain.settings.weight_quantization.reset();
  const WholeTensors values = plain.on_rank(0, [&](TrainingRank& rank) { return expected_of(rank, quantization); });
  struct Values final : StateSource {
    explicit Values(const WholeTensors& of) : values(of) {}
    void fill(StateKind, const Parameter& parameter, std::span<const Interval> elements,
              const Tensor& destination) const override {
      for_each_interval(elements, destination, [&](Interval interval, const Tensor& into) {
        std::copy_n(values.at(parameter.name).begin() + interval.begin, interval.size(), into.data<float>());
      });
    }
    const WholeTensors& values;
  };
  const WholeTensors expected = plain.on_rank(0, [&](TrainingRank& rank) {
    rank.model.load(Values(values));
    return rank.gradients();
  });
  test::expect_same_bits(rounded(quantization).gradients(), expected);
}

TEST(WeightRounding, stages_agree_bit_for_bit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    WeightQuantization quantization = some_layers();
    quantization.stochastic = dtype == DType::bf16;
    if (dtype == DType::f32) quantization.mixed_change = 0.3;
    TrainingCase each = rounded(quantization, sharded(2, 0)).in(dtype);
    test::same_at_every_stage(each);
  }
}

TEST(WeightRounding, recompute_offload_and_the_guarded_device_change_no_bit) {
  const test::TempFolder folder;
  const TrainingCase each = rounded(some_layers(), sharded(2, 3));
  const TrainingResult plain = each.run();
  TrainingCase recomputed = each, offloaded = each, guarded = each;
  recomputed.recompute = Recompute::full;
  offloaded.settings.offload_param = {.tier = {Pool::file, folder.path().string()}, .in_memory = 3000};
  guarded.guarded = true;
  for (const TrainingCase& other : {recomputed, offloaded, guarded}) expect_same_bits(other.run(), plain);
}

/// Rounding makes a step of what was a last bit, so that only first steps are compared.
TEST(WeightRounding, meshes_compute_the_first_step_alike) {
  TrainingCase one = rounded();
  one.steps.end = 1;
  const TrainingResult alone = one.run();
  TrainingCase plain = one;
  plain.settings.weight_quantization.reset();
  EXPECT_GT(std::abs(plain.run().losses[0] - alone.losses[0]), 1e-4) << "rounding does nothing";
  for (const GridSizes& sizes :
       {GridSizes{.tensor = 2}, GridSizes{.pipeline = 2}, GridSizes{.tensor = 2, .pipeline = 2}}) {
    TrainingCase each = one;
    each.mesh.sizes = sizes;
    expect_losses_within(each.run(), alone, 1e-5);
  }
}

TEST(WeightRounding, before_the_offset_a_run_keeps_its_bits) {
  WeightQuantization quantization = some_layers();
  quantization.schedule_offset = 2;
  const TrainingResult late = rounded(quantization).run();
  TrainingCase plain = rounded();
  plain.settings.weight_quantization.reset();
  const TrainingResult without = plain.run();
  EXPECT_EQ(late.losses[1], without.losses[1]);
  EXPECT_NE(late.losses[2], without.losses[2]);
}

TEST(WeightRounding, a_resumed_run_goes_on_with_the_schedule) {
  TrainingCase each = rounded(some_layers(), sharded(2, 2)), other = each;
  each.steps.end = other.steps.end = 6;
  other.mesh.stage = 3;
  expect_same_bits(test::resumed_at(3, each, other), each.run(), 3);
}

TEST(WeightRounding, refuses_layers_by_name) {
  const auto error = [](const WeightQuantization& quantization) {
    return test::message_of<ConfigError>([&] {
      Decoder decoder(rounded().model);
      rounded_weights(quantization, decoder);
    });
  };
  EXPECT_THAT(error({.groups = {layers("q_porj", 8, 8)}}),
              HasSubstr("\"q_porj\" matches no matrix or table; the nearest is model.layers.0.self_attn.q_proj"));
  EXPECT_THAT(error({.groups = {layers("q_proj", 8, 8), layers("layers.1", 8, 8)}}),
              HasSubstr("\"layers.1\" matches model.layers.1.self_attn.q_proj, which is in q_proj already"));
  EXPECT_THAT(error({.quantize_groups = 7, .groups = {layers("q_proj", 8, 8)}}),
              HasSubstr("of model.layers.0.self_attn.q_proj do not divide into quantize_groups = 7"));
  EXPECT_THAT(error({.groups = {layers("(", 8, 8)}}), HasSubstr("different_groups.(.modules: "));
  EXPECT_THAT(error({.groups = {layers("norm", 8, 8)}}), HasSubstr("matches no matrix or table"));
}

TEST(WeightRounding, lists_the_layers_of_each_group) {
  Decoder decoder(rounded().model);
  const auto lines = describe_rounded_weights(
      {.quantize_groups = 2, .groups = {layers("q_proj", 8, 7), layers("lm_head", 4, 4)}}, decoder);
  EXPECT_THAT(lines, testing::ElementsAre(
                         HasSubstr("3 layers, model.layers.0.self_attn.q_proj to model.layers.2.self_attn.q_proj"),
                         HasSubstr("weight_quantization lm_head: 4 bits, symmetric, from step 1 on: lm_head")));
}

}  // namespace
}  // namespace nought::weight_rounding_test
