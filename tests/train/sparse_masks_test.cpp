// Training without the smallest weights: masks of the weights that a run begins with, at every stage and on every mesh.
#include "nought/zero/sparse_masks.h"

#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/compress/masks.h"
#include "nought/zero/whole_tensor.h"

namespace nought::sparse_masks_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;
using test::WholeTensors;
using testing::HasSubstr;

TrainingCase pruned(int64_t offset = 0, const test::MeshLayout& mesh = {}) {
  TrainingCase each =
      test::learning(test::small_model("grouped_heads", 3, {{"hidden_size", 48}, {"intermediate_size", 80}}), mesh);
  each.steps.end = 4, each.lr = 5e-3;
  each.rows.of_step = 12, each.rows.length = 16;
  each.settings.sparse_pruning = SparsePruning{
      .schedule_offset = offset, .groups = {{"mlp", {"mlp\\."}, 0.5}, {"attention", {"self_attn\\.[qo]"}, 0.3}}};
  return each;
}

/// 0.5, 0.3 or 1, by the groups above.
double ratio_of(const std::string& name) {
  if (name.find("mlp.") != std::string::npos) return 0.5;
  return name.find("q_proj") != std::string::npos || name.find("o_proj") != std::string::npos ? 0.3 : 1;
}

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

TEST(SparseMasks, passes_compute_without_the_smallest_weights_of_each_matrix) {
  for (const test::MeshLayout& mesh : {sharded(1, 0), sharded(2, 3), test::MeshLayout{.sizes = {.tensor = 2}}})
    pruned(0, mesh).on_ranks([&](TrainingRank& rank) {
      WholeTensors expected = test::whole_weights(rank.model);
      for (auto& [name, values] : expected) {
        if (ratio_of(name) == 1) continue;
        const Mask mask = l1_mask(values, ratio_of(name));
        for (size_t i = 0; i < values.size(); ++i)
          if (mask[i] == 0) values[i] = 0;
      }
      test::expect_same_bits(computed_with(rank), expected);
    });
}

TEST(SparseMasks, weights_that_count_as_0_have_no_gradient_and_stay) {
  TrainingCase each = pruned();
  each.settings.optimizer.weight_decay = 0;
  TrainingCase begun = each;
  begun.steps.end = 0;
  const WholeTensors before = begun.run().weights, after = each.run().weights;
  for (const auto& [name, values] : before) {
    const Mask mask = l1_mask(values, ratio_of(name));
    size_t moved = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (mask[i] == 0) {
        ASSERT_EQ(after.at(name)[i], values[i]) << name << " " << i;
      }
      moved += after.at(name)[i] != values[i] ? 1 : 0;
    }
    if (ratio_of(name) < 1) {
      EXPECT_GT(moved, values.size() / 4) << name;
    }
  }
}

TEST(SparseMasks, stages_agree_bit_for_bit) {
  for (const DType dtype : {DType::f32, DType::bf16}) test::same_at_every_stage(pruned(1, sharded(2, 0)).in(dtype));
}

TEST(SparseMasks, meshes_agree) {
  const TrainingResult alone = pruned().run();
  for (const GridSizes& sizes :
       {GridSizes{.tensor = 2}, GridSizes{.pipeline = 2}, GridSizes{.shard = 2, .tensor = 2}}) {
    TrainingCase each = pruned();
    each.mesh.sizes = sizes;
    expect_losses_within(each.run(), alone, 1e-5);
  }
}

TEST(SparseMasks, recompute_offload_and_the_guarded_device_change_no_bit) {
  const test::TempFolder folder;
  const TrainingCase each = pruned(0, sharded(2, 3));
  const TrainingResult result = each.run();
  TrainingCase recomputed = each, offloaded = each, guarded = each;
  recomputed.recompute = Recompute::full;
  offloaded.settings.offload_param = {.tier = {Pool::file, folder.path().string()}, .in_memory = 3000};
  guarded.guarded = true;
  for (const TrainingCase& other : {recomputed, offloaded, guarded}) expect_same_bits(other.run(), result);
}

/// The masks are those of the first weights, though the last ones are others.
TEST(SparseMasks, masks_are_those_of_the_start_and_a_resumed_run_has_them) {
  TrainingCase each = pruned(2, sharded(2, 2));
  each.steps.end = 6;
  expect_same_bits(test::resumed_at(3, each, each), each.run(), 3);
}

TEST(SparseMasks, before_the_offset_a_run_keeps_its_bits) {
  TrainingCase plain = pruned();
  plain.settings.sparse_pruning.reset();
  const TrainingResult late = pruned(2).run(), without = plain.run();
  EXPECT_EQ(late.losses[1], without.losses[1]);
  EXPECT_NE(late.losses[2], without.losses[2]);
}

TEST(SparseMasks, lists_the_layers_of_each_group) {
  Decoder decoder(pruned().model);
  EXPECT_THAT(describe_sparse_masks(*pruned().settings.sparse_pruning, decoder),
              testing::ElementsAre(
                  "sparse_pruning mlp: the 50% largest weights, from step 1 on: 9 layers, model.layers.0.mlp.gate_proj "
                  "to model.layers.2.mlp.down_proj",
                  HasSubstr("sparse_pruning attention: the 30% largest weights, from step 1 on: 6 layers")));
  EXPECT_THAT(test::message_of<ConfigError>([&] {
                describe_sparse_masks({.groups = {{"a", {"q_porj"}, 0.5}}}, decoder);
              }),
              HasSubstr("sparse_pruning.different_groups.a.modules: \"q_porj\" matches no matrix or table"));
}

}  // namespace
}  // namespace nought::sparse_masks_test
