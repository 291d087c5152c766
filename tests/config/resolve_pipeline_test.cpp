// Which keys say how layers are shared out over pipeline stages, and when they contradict each other.
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_pipeline_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::string with(const std::string& args, const std::string& section = "", const std::string& more = "") {
  return fmt::format(R"({{"training": {{{}"parallelism_config": {{{}}}}}, "deepspeed": {{"pipeline": {{{}}}}}}})", more,
                     args, section);
}

TEST(ResolvePipeline, deepspeeds_stages_are_pp_size) {
  for (const std::string& text : {with(R"("pp_size": 2)", R"("stages": "auto")"), with("", R"("stages": 2)"),
                                  with(R"("pp_size": 2)", R"("stages": 2)")})
    EXPECT_EQ(plan_of(text, 4).layout.pipeline.ranks, 2) << text;
  EXPECT_EQ(reason_of(plan_of(with("", R"("stages": 2)"), 4), "parallelism_config.pp_size"),
            "deepspeed: pipeline.stages");
  EXPECT_THAT(
      error_of(with(R"("pp_size": 4)", R"("stages": 2)"), 4),
      HasSubstr("deepspeed.pipeline.stages = 2 contradicts RUN.json: training.parallelism_config.pp_size = 4: make "
                "them equal, or remove one"));
  EXPECT_THAT(error_of(with("", R"("stages": 3)"), 4), HasSubstr("the nearest size that can is 2"));
}

TEST(ResolvePipeline, the_partition_has_two_names_that_must_agree) {
  const auto partition = [](const std::string& args, const std::string& section = "") {
    return plan_of(with(R"("pp_size": 2)" + args, section), 2).layout.pipeline.partition.method;
  };
  EXPECT_EQ(partition(""), "parameters");
  EXPECT_EQ(partition("", R"("partition": "best")"), "parameters");
  EXPECT_EQ(partition(R"(, "pipeline_parallel_partition": "profile")"), "profile");
  EXPECT_EQ(partition("", R"("partition": "type:Block")"), "type:Block");
  EXPECT_EQ(partition(R"(, "pipeline_parallel_partition": "parameters")", R"("partition": "best")"), "parameters");
  EXPECT_EQ(value_of(plan_of(with(R"("pp_size": 2)", R"("partition": "uniform")"), 2),
                     "parallelism_config.pipeline_parallel_partition"),
            "uniform");
  EXPECT_THAT(
      error_of(with(R"("pp_size": 2, "pipeline_parallel_partition": "profile")", R"("partition": "uniform")"), 2),
      HasSubstr("deepspeed.pipeline.partition = \"uniform\" contradicts RUN.json: "
                "training.parallelism_config.pipeline_parallel_partition = \"profile\": make them equal"));
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "pipeline_parallel_partition": "type:(")"), 2),
              HasSubstr("pipeline_parallel_partition: pipeline partition \"type:(\": \"(\" is not a regular"));
}

TEST(ResolvePipeline, fewer_layers_of_the_first_and_last_stage_make_the_partition_uniform) {
  const RunPlan plan = plan_of(with(R"("pp_size": 2, "pipeline_parallel_last_stage_less_layers": 3)"), 2);
  EXPECT_EQ(plan.layout.pipeline.partition.method, "uniform");
  EXPECT_EQ(plan.layout.pipeline.partition.first_less, 1) << "as in torchtitan";
  EXPECT_EQ(plan.layout.pipeline.partition.last_less, 3);
  EXPECT_EQ(reason_of(plan, "parallelism_config.pipeline_parallel_partition"),
            "training.parallelism_config.pipeline_parallel_last_stage_less_layers");
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "pipeline_parallel_first_stage_less_layers": 2,
                               "pipeline_parallel_partition": "parameters")"),
                       2),
              HasSubstr("first_stage_less_layers = 2 counts layers, and RUN.json: "
                        "training.parallelism_config.pipeline_parallel_partition = \"parameters\" does not: write "
                        "\"uniform\""));
  EXPECT_THAT(error_of(with(R"("pp_size": 2, "pipeline_parallel_first_stage_less_layers": -1)"), 2),
              HasSubstr("first_stage_less_layers: expected at least 0, got -1"));
}

TEST(ResolvePipeline, what_has_no_effect_says_so) {
  EXPECT_THAT(plan_of(with("", R"("partition": "best", "stages": 1, "seed_layers": false)"), 2).warnings, IsEmpty());
  EXPECT_THAT(plan_of(with("", R"("partition": "uniform")"), 2).warnings,
              ElementsAre(HasSubstr("deepspeed.pipeline.partition has no effect: there is one pipeline stage")));
  EXPECT_THAT(
      plan_of(with(R"("pp_size": 2)", R"("seed_layers": true, "pipe_partitioned": false, "grad_partitioned": false)"),
              2)
          .warnings,
      UnorderedElementsAre(
          HasSubstr("grad_partitioned = false has no effect: ranks of tp_size send their slices"),
          HasSubstr("pipe_partitioned = false has no effect"),
          HasSubstr("seed_layers = true has no effect: initial values follow from seed, name and index")));
  EXPECT_THAT(plan_of(with(R"("pp_size": 2)", R"("use_reentrant": false)"), 2).warnings, IsEmpty());
}

TEST(ResolvePipeline, an_interval_of_checkpoints_is_full_recompute) {
  const RunPlan plan = plan_of(with("", R"("activation_checkpoint_interval": 2)"));
  EXPECT_EQ(plan.layout.recompute.mode, Recompute::full);
  EXPECT_EQ(plan.layout.recompute.interval, 2);
  EXPECT_EQ(value_of(plan, "recompute"), "full");
  EXPECT_EQ(reason_of(plan, "recompute"), "deepspeed: pipeline.activation_checkpoint_interval");
  EXPECT_EQ(plan_of(with("", R"("activation_checkpoint_interval": 0)")).layout.recompute, RecomputeOptions());
  EXPECT_EQ(
      plan_of(with("", R"("activation_checkpoint_interval": 3)", R"("recompute": "full", )")).layout.recompute.interval,
      3);
  EXPECT_THAT(error_of(with("", R"("activation_checkpoint_interval": 2)", R"("recompute": "selective", )")),
              HasSubstr("activation_checkpoint_interval = 2 means training.recompute = \"full\", and RUN.json says "
                        "\"selective\": give one of them"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"pipeline": {"activation_checkpoint_interval": 2},
                                         "activation_checkpointing": {"number_checkpoints": 4}}})"),
              HasSubstr("both say how many blocks run again together"));
}

}  // namespace
}  // namespace nought::resolve_pipeline_test
