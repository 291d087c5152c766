// Runs whose ranks keep second copies, add in hops or send codes follow plain ones: to the bit, to the rounding of
// another order, or within what codes lose. Files hold the values.
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::zeropp_test {
namespace {

using test::small_model;
using test::TrainingCase;
using test::TrainingResult;

TrainingCase at_stage_3(const GridSizes& sizes, int64_t steps, const char* model = "qk_norms") {
  return {.model = small_model(model), .mesh = {.sizes = sizes, .stage = 3}, .steps = {0, steps}};
}

TEST(ZeroPlusPlus, second_copies_among_neighbours_change_no_bit) {
  TrainingCase narrow = at_stage_3({.shard = 4}, 3, "shared_experts");
  narrow.settings.dtype = DType::bf16;
  narrow.settings.overlap = false;
  std::vector<TrainingCase> all{narrow};
  for (const GridSizes& sizes :
       {GridSizes{.shard = 4}, GridSizes{.replicate = 2, .shard = 4}, GridSizes{.shard = 4, .tensor = 2},
        GridSizes{.shard = 4, .pipeline = 2}, GridSizes{.shard = 4, .expert = 2}})
    all.push_back(at_stage_3(sizes, 3, "shared_experts"));
  for (const TrainingCase& plain : all) {
    TrainingCase kept = plain;
    kept.mesh.sizes.secondary = 2, kept.mesh.sizes.host_ranks = 2 * plain.mesh.sizes.tensor;
    expect_same_bits(kept.run(), plain.run());
  }
}

TEST(ZeroPlusPlus, sums_of_two_hops_are_those_of_one_rank) {
  const TrainingResult dense = at_stage_3({}, 6).run(), experts = at_stage_3({}, 6, "shared_experts").run();
  for (const GridSizes& sizes :
       {GridSizes{.shard = 4, .host_ranks = 2}, GridSizes{.shard = 4},
        GridSizes{.replicate = 2, .shard = 4, .host_ranks = 2}, GridSizes{.shard = 4, .expert = 2, .host_ranks = 2}}) {
    const bool has_experts = sizes.expert > 1;
    TrainingCase hops = at_stage_3(sizes, 6, has_experts ? "shared_experts" : "qk_norms");
    hops.settings.codes.gradient_bits = 32;
    expect_close(hops.run(), has_experts ? experts : dense);
  }
}

void expect_within_a_percent(const TrainingResult& result, const TrainingResult& plain, const char* what) {
  EXPECT_NE(result.losses, plain.losses) << what << ": codes were sent";
  ASSERT_EQ(result.losses.size(), plain.losses.size());
  for (size_t step = 0; step < plain.losses.size(); ++step)
    ASSERT_NEAR(result.losses[step], plain.losses[step], 0.01 * plain.losses[step]) << what << ", step " << step;
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
  const TrainingResult plain = at_stage_3({.shard = 4}, 20).run();
  for (const Part& part : kParts) {
    TrainingCase each = at_stage_3({.shard = 4, .host_ranks = 2, .secondary = part.secondary}, 20);
    each.settings.codes = part.codes;
    expect_within_a_percent(each.run(), plain, part.name);
  }
}

/// Without overlap, with parameters in files: what the program does later changes nothing.
TEST(ZeroPlusPlus, codes_are_the_same_whenever_they_are_sent) {
  TrainingCase plain = at_stage_3({.shard = 4, .host_ranks = 2}, 3);
  plain.settings.codes = kParts[3].codes;
  const TrainingResult expected = plain.run();
  TrainingCase in_turn = plain, in_files = plain;
  in_turn.settings.overlap = false;
  const test::TempFolder folder;
  in_files.settings.offload_param = {.tier = {Pool::file, folder.path().string()}};
  in_files.settings.offload_param.in_memory = 0;
  for (const TrainingCase& each : {plain, in_turn, in_files}) expect_same_bits(each.run(), expected);
}

TEST(ZeroPlusPlus, checkpoints_and_exports_hold_the_values) {
  const test::TempFolder folder;
  TrainingCase each = at_stage_3({.shard = 4, .secondary = 2}, 2);
  each.settings.codes.weight_bits = 8;
  each.saved = folder.path().string();
  const TrainingResult result = each.run();
  TrainingCase alone = at_stage_3({}, 2);
  alone.resumed = each.saved, alone.steps.begin = 2;
  test::expect_same_bits(alone.run().weights, result.weights);
}

/// What was lost is not lost with the run: with errors that begin anew the rest of it would be another.
TEST(ZeroPlusPlus, errors_are_kept_in_checkpoints) {
  TrainingCase whole = at_stage_3({.shard = 4, .host_ranks = 2}, 5);
  whole.settings.codes = {.gradient_bits = 4, .feedback = ErrorFeedback{.beta = 0.8, .reset = 10}};
  expect_same_bits(test::resumed_at(3, whole, whole), whole.run(), 3);
}

/// With scales that they share with what each of these ranks has a part of, their copies of a norm would drift apart,
/// and a resume from one of them would go on elsewhere.
TEST(ZeroPlusPlus, what_tensor_parallel_ranks_hold_alike_stays_alike) {
  TrainingCase whole = at_stage_3({.shard = 2, .tensor = 2}, 3);
  whole.settings.codes.gradient_bits = 4;
  whole.settings.reduce_bucket = 50000;
  expect_same_bits(test::resumed_at(1, whole, whole), whole.run(), 1);
}

TEST(ZeroPlusPlus, rows_that_go_to_experts_as_codes_follow_those_that_go_as_they_are) {
  TrainingCase each = at_stage_3({.shard = 4, .expert = 4}, 10, "shared_experts");
  const TrainingResult plain = each.run();
  each.model.experts->quantized_dispatch = true;
  expect_within_a_percent(each.run(), plain, "rows");
}

TEST(ZeroPlusPlus, below_stage_3_codes_are_refused) {
  TrainingCase each = at_stage_3({.shard = 2}, 1);
  each.mesh.stage = 2;
  each.settings.codes.weight_bits = 8;
  EXPECT_THROW(each.run(), ConfigError);
}

}  // namespace
}  // namespace nought::zeropp_test
