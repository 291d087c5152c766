#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_mesh_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::HasSubstr;

TEST(ResolveMesh, all_ranks_shard_unless_the_mesh_says_otherwise) {
  const auto with = [](const std::string& args) {
    return fmt::format(R"({{"training": {{"parallelism_config": {{{}}}}}}})", args);
  };
  for (const char* args : {"", R"("tp_size": 1, "cp_size": 1, "dp_replicate_size": 1)"})
    EXPECT_EQ(plan_of(with(args), 4).layout.shard_ranks(), 4);
  const RunPlan plan = plan_of(with(R"("dp_shard_size": 4)"), 4);
  EXPECT_EQ(plan.layout.shard_ranks(), 4);
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_shard_size"), "training.parallelism_config.dp_shard_size");
  EXPECT_THAT(error_of(with(R"("dp_shard_size": 2)"), 4), HasSubstr("dp_shard_size = 2: the product of"));
  EXPECT_THAT(error_of(with(R"("tpsize": 2)"), 4), HasSubstr("tp_size")) << "the nearest name";
}

TEST(ResolveMesh, ranks_that_share_matrices_see_the_same_samples) {
  for (const char* text : {R"({"training": {"parallelism_config": {"tp_size": 2}, "per_device_train_batch_size": 3,
                                             "gradient_accumulation_steps": 5}})",
                           R"({"training": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5},
                              "deepspeed": {"tensor_parallel": {"autotp_size": 2}}})",
                           R"({"training": {"parallelism_config": {"tp_size": 2, "dp_shard_size": 4}},
                              "deepspeed": {"train_batch_size": 60, "train_micro_batch_size_per_gpu": 3}})"}) {
    const RunPlan plan = plan_of(text, 8);
    EXPECT_EQ(plan.layout.tensor_ranks, 2);
    EXPECT_EQ(plan.layout.shard_ranks(), 4);
    EXPECT_EQ(plan.layout.data_ranks(), 4);
    EXPECT_EQ(plan.layout.train_batch(), 60);
    EXPECT_EQ(plan.layout.accumulation, 5);
  }
  const auto with = [](const std::string& args, const std::string& more = "") {
    return fmt::format(R"({{"training": {{{}"parallelism_config": {{{}}}}}}})", more, args);
  };
  EXPECT_EQ(reason_of(plan_of(with(R"("tp_size": 2)"), 4), "parallelism_config.tp_size"),
            "training.parallelism_config.tp_size");
  EXPECT_THAT(error_of(with(R"("tp_size": 3)"), 4),
              HasSubstr("tp_size = 3: 4 ranks cannot be divided by it; the nearest "
                        "size that can is 2"));
  EXPECT_THAT(error_of(with(R"("tp_size": 2, "dp_shard_size": 4)"), 4),
              HasSubstr("with tp_size 2 write 2, or leave it out"));
  EXPECT_THAT(error_of(with(R"("tp_size": 0)"), 4), HasSubstr("tp_size: expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"training": {"parallelism_config": {"tp_size": 4}},
                           "deepspeed": {"tensor_parallel": {"autotp_size": 2}}})",
                       4),
              HasSubstr("deepspeed.tensor_parallel.autotp_size = 2 contradicts RUN.json: "
                        "training.parallelism_config.tp_size = 4: make them equal, or remove one"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
                           "tensor_parallel": {"autotp_size": 2}}})",
                       4),
              HasSubstr("x data-parallel ranks 2 = 4"));
  EXPECT_EQ(plan_of(with(R"("tp_size": 2)", R"("optim": "muon", )"), 4).layout.tensor_ranks, 2);
  for (const char* recipe : {"delayed", "current"})
    EXPECT_EQ(
        plan_of(with(R"("tp_size": 2)", fmt::format(R"("bf16": true, "fp8": "{}", )", recipe)), 4).layout.tensor_ranks,
        2);
}

TEST(ResolveMesh, ranks_that_hold_different_experts_are_among_those_that_read_different_samples) {
  for (
      const char* text :
      {R"({"training": {"parallelism_config": {"tp_size": 2, "ep_size": 2}}})",
       R"({"deepspeed": {"tensor_parallel": {"autotp_size": 2}, "expert_parallel": {"enabled": true, "autoep_size": 2}}})",
       R"({"training": {"parallelism_config": {"tp_size": 2, "ep_size": 2}},
            "deepspeed": {"expert_parallel": {"enabled": true, "autoep_size": 2, "expert_tensor_parallel_size": 2}}})"}) {
    const RunPlan plan = plan_of(text, 8);
    EXPECT_EQ(plan.layout.tensor_ranks, 2);
    EXPECT_EQ(plan.layout.shard_ranks(), 4);
    EXPECT_EQ(plan.layout.expert_ranks, 2);
    EXPECT_EQ(plan.layout.grid().expert_tensor, 2);
    EXPECT_EQ(plan.layout.data_ranks(), 4);
  }
  const RunPlan plan = plan_of(R"({"training": {"parallelism_config": {"ep_size": 4}}})", 4);
  EXPECT_EQ(plan.layout.expert_ranks, 4);
  EXPECT_EQ(plan.layout.shard_ranks(), 4);
  EXPECT_EQ(reason_of(plan, "parallelism_config.ep_size"), "training.parallelism_config.ep_size");
  EXPECT_EQ(describe_mesh(plan), (std::vector<std::string>{"shard           4   ranks 0 1 2 3",  //
                                                           "expert          4   ranks 0 1 2 3"}));
}

TEST(ResolveMesh, sizes_of_experts_that_cannot_be_are_refused_with_one_that_can) {
  const auto with = [](const std::string& args, const std::string& deepspeed = "") {
    return fmt::format(R"({{"training": {{"parallelism_config": {{{}}}}}, "deepspeed": {{{}}}}})", args, deepspeed);
  };
  EXPECT_THAT(error_of(with(R"("ep_size": 5)"), 8),
              HasSubstr("ep_size = 5: 8 data-parallel ranks cannot be divided by it; the nearest size that can is 4"));
  EXPECT_THAT(error_of(with(R"("ep_size": 8, "tp_size": 2)"), 8), HasSubstr("4 data-parallel ranks cannot be"));
  EXPECT_THAT(error_of(with(R"("ep_size": 2)"), 1), HasSubstr("the nearest size that can is 1"));
  EXPECT_THAT(error_of(with(R"("ep_size": 0)"), 4), HasSubstr("ep_size: expected at least 1, got 0"));
  EXPECT_THAT(error_of(with(R"("ep_size": 4)", R"("expert_parallel": {"enabled": true, "autoep_size": 2})"), 4),
              HasSubstr("deepspeed.expert_parallel.autoep_size = 2 contradicts RUN.json: "
                        "training.parallelism_config.ep_size = 4: make them equal"));
  EXPECT_THAT(
      error_of(with(R"("tp_size": 2)",
                    R"("expert_parallel": {"enabled": true, "autoep_size": 2, "expert_tensor_parallel_size": 1})"),
               4),
      HasSubstr("expert_tensor_parallel_size = 1: experts are cut over the 2 ranks of tp_size, as all other "
                "matrices: write 2, or leave it out"));
}

TEST(ResolveMesh, a_section_of_experts_that_is_not_enabled_says_that_it_has_no_effect) {
  const RunPlan plan = plan_of(R"({"deepspeed": {"expert_parallel": {"autoep_size": 4}}})", 4);
  EXPECT_EQ(plan.layout.shard_ranks(), plan.layout.ranks);
  EXPECT_THAT(plan.warnings,
              testing::ElementsAre(HasSubstr("deepspeed.expert_parallel.autoep_size = 4 has no effect")));
  EXPECT_TRUE(
      plan_of(R"({"deepspeed": {"expert_parallel": {"enabled": false, "autoep_size": 1}}})", 4).warnings.empty());
}

TEST(ResolveMesh, tokens_are_sliced_between_ranks_that_share_matrices) {
  const auto with = [](const std::string& args) {
    return fmt::format(R"({{"training": {{"parallelism_config": {{{}}}}}}})", args);
  };
  const RunPlan plan = plan_of(with(R"("tp_size": 2, "sequence_parallel": true)"), 4);
  EXPECT_TRUE(plan.layout.sequence_parallel);
  EXPECT_EQ(value_of(plan, "parallelism_config.sequence_parallel"), "true");
  EXPECT_EQ(describe_mesh(plan).back(),
            "sequence        2   slices of the tokens between products, over the tensor ranks");
  EXPECT_FALSE(plan_of(with(R"("tp_size": 2)"), 4).layout.sequence_parallel);
  EXPECT_THAT(error_of(with(R"("sequence_parallel": true)"), 9),
              HasSubstr("sequence_parallel = true: it shares out the tokens between the ranks of tp_size, which is 1: "
                        "write tp_size 3, or leave it out"));
  EXPECT_THAT(error_of(with(R"("sequence_parallel": true)"), 1), HasSubstr("which is 1: leave it out"));
}

TEST(ResolveMesh, pipeline_stages_take_their_part_of_the_ranks) {
  const auto with = [](const std::string& args, const std::string& more = "") {
    return fmt::format(R"({{"training": {{{}"parallelism_config": {{{}}}}}}})", more, args);
  };
  const RunPlan plan = plan_of(with(R"("pp_size": 2, "tp_size": 2)"), 8);
  EXPECT_EQ(plan.layout.stages(), 2);
  EXPECT_EQ(plan.layout.data_ranks(), 2);
  EXPECT_EQ(plan.layout.pipeline.schedule, PipelineSchedule::one_f_one_b);
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_shard_size"), "world_size / tp_size / pp_size");
  const RunPlan zbv = plan_of(with(R"("pp_size": 4, "pipeline_parallel_schedule": "ZBVZeroBubble")"), 4);
  EXPECT_EQ(zbv.layout.pipeline.chunks, 2);
  EXPECT_TRUE(zbv.layout.pipeline.v_shaped());
  EXPECT_THAT(error_of(with(R"("pp_size": 3)"), 8), HasSubstr("the nearest size that can is 2"));
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "dp_shard_size": 8)"), 8), HasSubstr("and pp_size 2 write 4"));
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "pipeline_parallel_schedule": "2F2B")"), 2), HasSubstr("Interleaved1F1B"));
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "virtual_pipeline_size": 2)"), 2), HasSubstr("Interleaved1F1B"));
  EXPECT_THAT(error_of(with(R"("pp_size": 4, "pipeline_parallel_schedule": "Interleaved1F1B")",
                            R"("gradient_accumulation_steps": 9, )"),
                       4),
              HasSubstr("the nearest gradient_accumulation_steps that work are 8 and 10"));
}

}  // namespace
}  // namespace nought::resolve_mesh_test
