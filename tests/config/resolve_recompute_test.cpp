#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_recompute_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ResolveRecompute, recompute_has_two_names_that_must_agree) {
  EXPECT_EQ(plan_of(R"({"training": {"gradient_checkpointing": true}})").layout.recompute.mode, Recompute::full);
  EXPECT_EQ(plan_of(R"({"training": {"recompute": "selective"}})").layout.recompute.mode, Recompute::selective);
  EXPECT_EQ(plan_of(R"({"training": {"recompute": "full", "gradient_checkpointing": true}})").layout.recompute.mode,
            Recompute::full);
  EXPECT_EQ(
      error_of(R"({"training": {"recompute": "selective", "gradient_checkpointing": true}})"),
      "RUN.json: training.gradient_checkpointing = true contradicts RUN.json: training.recompute = \"selective\": "
      "give one of them");
}

TEST(ResolveRecompute, tiles_of_the_mlp_are_a_number_or_left_to_the_model) {
  const auto tiles = [](const std::string& keys) {
    return plan_of(R"({"training": {)" + keys + "}}").layout.recompute.mlp_tiles;
  };
  EXPECT_EQ(tiles(""), 1);
  EXPECT_EQ(tiles(R"("tiled_mlp": true)"), 0);
  EXPECT_EQ(tiles(R"("tiled_mlp": "auto")"), 0);
  EXPECT_EQ(tiles(R"("tiled_mlp": false)"), 1);
  EXPECT_EQ(tiles(R"("tiled_mlp": 8)"), 8);
  EXPECT_EQ(plan_of("{}", 1, {"training.tiled_mlp=true"}).layout.recompute.mlp_tiles, 0);
  EXPECT_EQ(tiles(R"("tiled_mlp": true, "tiled_mlp_num_shards": 4)"), 4) << "axolotl's keys";
  EXPECT_EQ(tiles(R"("tiled_mlp": false, "tiled_mlp_num_shards": 4)"), 1);
  EXPECT_EQ(reason_of(plan_of(R"({"training": {"tiled_mlp": true}})"), "tiled_mlp"),
            "training.tiled_mlp: tokens of a rank / hidden size");
  EXPECT_THAT(error_of(R"({"training": {"tiled_mlp": 0}})"),
              HasSubstr("training.tiled_mlp: expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"training": {"tiled_mlp": 2, "tiled_mlp_num_shards": 4}})"), HasSubstr("contradicts"));
}

TEST(ResolveRecompute, checkpoints_are_those_of_deepspeed_where_recompute_is_full) {
  const char* section =
      R"("deepspeed": {"activation_checkpointing": {"number_checkpoints": 4, "cpu_checkpointing": true,
                       "contiguous_memory_optimization": true}}})";
  const RunPlan full = plan_of(R"({"training": {"recompute": "full"}, )" + std::string(section));
  EXPECT_EQ(full.layout.recompute.checkpoints, 4);
  EXPECT_EQ(full.layout.recompute.tier.pool, Pool::host);
  EXPECT_TRUE(full.layout.recompute.contiguous);
  const RunPlan none = plan_of("{" + std::string(section));
  EXPECT_EQ(none.layout.recompute, RecomputeOptions());
  EXPECT_EQ(none.warnings.size(), 3u);
  EXPECT_NE(none.warnings[0].find("number_checkpoints has no effect: recompute is none"), std::string::npos);
}

TEST(ResolveRecompute, inputs_of_blocks_are_shared_out_where_ranks_have_the_same_ones) {
  const auto plan = [](const char* mesh) {
    return plan_of(fmt::format(R"({{"training": {{"recompute": "full", "parallelism_config": {{{}}}}},
                       "deepspeed": {{"activation_checkpointing": {{"partition_activations": true}}}}}})",
                               mesh),
                   2);
  };
  EXPECT_TRUE(plan(R"("tp_size": 2)").layout.recompute.partitioned);
  const RunPlan alone = plan(""), slices = plan(R"("tp_size": 2, "sequence_parallel": true)");
  EXPECT_FALSE(alone.layout.recompute.partitioned || slices.layout.recompute.partitioned);
  EXPECT_THAT(alone.warnings, ElementsAre(HasSubstr("partition_activations has no effect: no ranks share matrices")));
  EXPECT_THAT(slices.warnings, ElementsAre(HasSubstr("each rank has its slice of the inputs already")));
}

RunPlan plan_with_inputs(const std::string& training, const std::string& deepspeed = "") {
  return plan_of(fmt::format(R"({{"training": {{"recompute": "full"{}}}, "deepspeed": {{{}}}}})", training, deepspeed));
}
constexpr const char* kCpuCheckpointing = R"("activation_checkpointing": {"cpu_checkpointing": true})";
constexpr const char* kStatesInFiles =
    R"("zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/fast"}}, "aio": {"queue_depth": 3})";

TEST(ResolveRecompute, inputs_of_blocks_are_where_one_of_two_keys_says) {
  EXPECT_EQ(plan_with_inputs("").layout.recompute.tier.pool, Pool::device);
  EXPECT_EQ(reason_of(plan_with_inputs(""), "offload_inputs"), "default of training.offload_inputs");
  const RunPlan host = plan_with_inputs(R"(, "offload_inputs": "host")"), cpu = plan_with_inputs("", kCpuCheckpointing);
  EXPECT_EQ(host.layout.recompute, cpu.layout.recompute);
  EXPECT_EQ(host.layout.recompute.tier.pool, Pool::host);
  EXPECT_EQ(reason_of(cpu, "offload_inputs"), "deepspeed: activation_checkpointing.cpu_checkpointing");
  EXPECT_EQ(plan_with_inputs(R"(, "offload_inputs": "host")", kCpuCheckpointing).layout.recompute.tier.pool,
            Pool::host);
  for (const char* other : {"device", "file"})
    EXPECT_THAT(error_of(fmt::format(R"({{"training": {{"recompute": "full", "offload_inputs": "{}"}},
                                      "deepspeed": {{{}}}}})",
                                     other, kCpuCheckpointing)),
                HasSubstr(fmt::format("training.offload_inputs = \"{}\" contradicts", other)));
  EXPECT_THAT(error_of(R"({"training": {"recompute": "full", "offload_inputs": "host"},
                           "deepspeed": {"activation_checkpointing": {"cpu_checkpointing": false}}})"),
              HasSubstr("training.offload_inputs = \"host\" contradicts"));
  EXPECT_THAT(error_of(R"({"training": {"offload_inputs": "disk"}})"),
              HasSubstr("training.offload_inputs = \"disk\": expected \"device\", \"host\" or \"file\""));
}

TEST(ResolveRecompute, inputs_of_blocks_go_to_files_beside_others_of_the_rank) {
  const RunPlan states = plan_with_inputs(R"(, "offload_inputs": "file")", kStatesInFiles);
  EXPECT_EQ(states.layout.recompute.tier.pool, Pool::file);
  EXPECT_EQ(states.layout.recompute.tier.folder, "/fast");
  EXPECT_EQ(states.layout.recompute.tier.aio.queue_depth, 3);
  EXPECT_EQ(reason_of(states, "offload_inputs"), "training.offload_inputs, beside optimizer states in /fast");
  const RunPlan parameters = plan_with_inputs(R"(, "offload_inputs": "file")",
                                              R"("activation_checkpointing": {"cpu_checkpointing": false,
           "contiguous_memory_optimization": true},
           "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/drive"}})");
  EXPECT_EQ(parameters.layout.recompute.tier.folder, "/drive");
  EXPECT_FALSE(parameters.layout.recompute.contiguous);
  EXPECT_THAT(parameters.warnings, testing::Contains(HasSubstr("contiguous_memory_optimization has no effect")));
  EXPECT_THAT(error_of(R"({"training": {"recompute": "full", "offload_inputs": "file"}})"),
              HasSubstr("training.offload_inputs = \"file\": no folder is known"));
}

TEST(ResolveRecompute, inputs_of_blocks_stay_where_nothing_is_computed_from_them_again) {
  const RunPlan none = plan_of(R"({"training": {"recompute": "selective", "offload_inputs": "file"}})");
  EXPECT_EQ(none.layout.recompute.tier.pool, Pool::device);
  EXPECT_THAT(none.warnings, ElementsAre(HasSubstr("offload_inputs has no effect: recompute is selective")));
}

TEST(ResolveRecompute, inputs_of_blocks_are_kept_in_fp8_where_recompute_is_full) {
  EXPECT_TRUE(plan_of(R"({"training": {"recompute": "full", "recompute_fp8": true}})").layout.recompute.fp8);
  const RunPlan none = plan_of(R"({"training": {"recompute": "selective", "recompute_fp8": true}})");
  EXPECT_FALSE(none.layout.recompute.fp8);
  EXPECT_THAT(none.warnings, ElementsAre(HasSubstr("recompute_fp8 has no effect: recompute is selective")));
}

}  // namespace
}  // namespace nought::resolve_recompute_test
