// Frozen parameters stay what they were and change no bit of what is trained; at every stage, with every number of
// ranks.
#include "support/frozen_runs.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::frozen_test {
namespace {

using namespace test::frozen;
using testing::Each;

TEST(Frozen, zero_stages_agree_bit_for_bit) {
  for (Layout layout : frozen_layouts())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3}) {
        layout.dtype = dtype, layout.ranks = ranks, layout.stage = 0;
        const Result first = train(layout);
        for (const int stage : {1, 2, 3}) {
          layout.stage = stage;
          layout.overlap = stage != 2;
          SCOPED_TRACE(layout.str());
          EXPECT_TRUE(train(layout) == first);
        }
      }
}

TEST(Frozen, where_parameters_live_changes_no_bit) {
  const test::TempFolder folder;
  for (Layout layout : frozen_layouts()) {
    layout.dtype = DType::bf16, layout.ranks = 2, layout.stage = 3;
    const Result first = train(layout);
    // Some frozen segments stay in memory.
    layout.parameters = {.home = Pool::file, .folder = folder.path().string(), .in_memory = 3000};
    EXPECT_TRUE(train(layout) == first) << layout.str();
  }
}

TEST(Frozen, replicas_of_one_rank_have_the_bits_of_stage_0_and_those_of_two_ranks_follow) {
  for (Layout layout : frozen_layouts()) {
    layout.ranks = 2;
    const Result two = train(layout);
    layout.replicas = 2, layout.stage = 3;
    EXPECT_TRUE(train(layout) == two) << layout.str();
    layout.ranks = 6, layout.replicas = 3;
    const Result six = train(layout);
    for (size_t i = 0; i < two.losses.size(); ++i) EXPECT_NEAR(six.losses[i], two.losses[i], 1e-4) << layout.str();
  }
}

TEST(Frozen, what_is_frozen_stays_and_all_else_moves) {
  for (const Layout& layout : frozen_layouts()) {
    SCOPED_TRACE(layout.str());
    const Result result = train(layout);
    Decoder decoder(layout.config);
    apply(layout.freezing, decoder);
    for (const auto& unit : decoder.units())
      for (const Parameter& parameter : unit->parameters())
        EXPECT_EQ(result.after.at(parameter.name) != result.before.at(parameter.name), parameter.trainable)
            << parameter.name;
  }
}

/// Whether an optimizer holds them or nobody does, they start alike, in bf16 too.
TEST(Frozen, starts_from_the_same_bits_as_what_is_trained) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 3}) {
      Layout layout{.ranks = 2, .stage = stage, .dtype = dtype};
      const Values trained = train(layout, 0).before;
      layout.freezing = kHeadOnly;
      EXPECT_EQ(train(layout, 0).before, trained);
    }
}

TEST(Frozen, the_gradients_of_the_rest_are_the_same_bits_as_when_all_is_trained) {
  for (Layout layout : frozen_layouts())
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      layout.recompute = recompute;
      layout.recompute.checkpoints = recompute == Recompute::full ? 2 : 0;
      SCOPED_TRACE(fmt::format("{}, recompute {}", layout.str(), name_of(recompute)));
      const Values some = gradients_of(layout);
      Layout whole = layout;
      whole.freezing = {};
      const Values all = gradients_of(whole);
      Decoder decoder(layout.config);
      apply(layout.freezing, decoder);
      size_t trained = 0;
      for (const auto& unit : decoder.units())
        for (const Parameter& parameter : unit->parameters()) trained += parameter.trainable;
      EXPECT_EQ(some.size(), trained);
      for (const auto& [name, gradient] : some) EXPECT_EQ(gradient, all.at(name)) << name;
    }
}

TEST(Frozen, recompute_accumulation_and_buckets_change_no_bit) {
  for (Layout layout : frozen_layouts())
    for (const int stage : {0, 2, 3}) {
      layout.ranks = 2, layout.stage = stage, layout.accumulation = 3;
      const Result plain = train(layout, 3);
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        Layout other = layout;
        other.recompute = recompute;
        other.recompute.contiguous = recompute == Recompute::full;
        other.bucket = recompute == Recompute::full ? 4000 : 1'000'000;
        SCOPED_TRACE(fmt::format("{}, recompute {}", layout.str(), name_of(recompute)));
        EXPECT_TRUE(train(other, 3) == plain);
      }
    }
}

TEST(Frozen, the_choice_bias_of_experts_is_never_trained) {
  for (const bool decay_all : {false, true}) {
    Layout layout{.config = test::tiny_deepseek(kVocabulary), .ranks = 2, .stage = 2};
    layout.optimizer.decay_all = decay_all;
    const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
    EXPECT_FALSE(gradients_of(layout).contains(bias));
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      // Something that a decay would move.
      for (size_t unit = 0; unit < model.model().units().size(); ++unit)
        model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& values) {
          if (parameter.name == bias)
            for (float& value : values.span<float>()) value = 0.25F;
        });
      for (int step = 0; step < 3; ++step) take_step(layout, model, engine, step);
      EXPECT_THAT(values_of(model)[bias], Each(0.25F));
      for (const auto& state : model.optimizer().owned()) EXPECT_NE(state.parameter->name, bias);
    });
  }
}

}  // namespace
}  // namespace nought::frozen_test
