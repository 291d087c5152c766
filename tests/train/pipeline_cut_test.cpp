// The cut of a run into pipeline stages, as users see it.
#include "nought/engine/pipeline_cut.h"

#include "support/message_of.h"
#include "support/size.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::pipeline_cut_test {
namespace {

NOUGHT_FILE_SIZE(small);

using test::message_of;
using test::tiny_llama;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A block has 2208 parameters, the table 4096, the head one and a norm of 16.
TEST(PipelineCut, shows_what_each_stage_has) {
  EXPECT_THAT(describe_stages(tiny_llama(), {}, 16), IsEmpty());
  EXPECT_THAT(describe_stages(tiny_llama(), {.ranks = 2}, 16),
              ElementsAre("stages          2   cut by \"parameters\"",
                          "stage 0         2   Units: embedding to block.0, 6.30K parameters, 27% of the FLOPs",
                          "stage 1         2   Units: block.1 to head, 6.32K parameters, 73% of the FLOPs"));
  const Pipeline four{.ranks = 2, .chunks = 2, .partition = {.method = "profile"}};
  const std::vector<std::string> lines = describe_stages(tiny_llama(), four, 16);
  EXPECT_EQ(lines[0], "stages          4   cut by FLOPs; a run measures the time of its Units instead");
  EXPECT_EQ(lines[1], "stage 0         1   Units: embedding, 4.10K parameters, 0% of the FLOPs");
}

TEST(PipelineCut, shows_the_measured_time_and_each_stages_share_of_it) {
  Pipeline pipeline{.ranks = 2,
                    .partition = {.method = "profile", .costs = {1e-4, 1e-3, 1e-3, 2e-3}, .measured = true}};
  EXPECT_THAT(describe_stages(tiny_llama(), pipeline, 16),
              ElementsAre("stages          2   cut by measured time: embedding 0.1 ms, each block 1 ms, head 2 ms",
                          "stage 0         3   Units: embedding to block.1, 8.51K parameters, 51% of the time",
                          "stage 1         1   Units: head, 4.11K parameters, 49% of the time"));
  pipeline.partition.costs[2] = 2e-3;
  EXPECT_THAT(describe_stages(tiny_llama(), pipeline, 16)[0], HasSubstr("embedding 0.1 ms, blocks 1 ms to 2 ms, head"));
}

TEST(PipelineCut, follows_the_plan) {
  RunPlan plan;
  plan.layout.pipeline = {
      .schedule = PipelineSchedule::zbv, .ranks = 2, .chunks = 2, .partition = {.method = "profile"}};
  plan.layout.seq_length = 16;
  const PipelineCut cut = pipeline_cut_of(plan, tiny_llama());
  EXPECT_EQ(cut.chunks, 2);
  EXPECT_TRUE(cut.v_shaped);
  EXPECT_EQ(cut.partition.costs.size(), 4u);
}

TEST(PipelineCut, more_stages_than_units_are_refused_with_the_nearest_pp_size_that_works) {
  RunPlan plan;
  plan.layout.ranks = 24;
  const auto refusal = [&] { return message_of<ConfigError>([&] { require_stages(plan, tiny_llama()); }); };
  plan.layout.pipeline = {.ranks = 6};
  EXPECT_EQ(refusal(),
            "training.parallelism_config.pp_size = 6 with a stage per rank: 6 stages, each of which needs a Unit, and "
            "the model has 4 (the embedding, 2 blocks and the head); the nearest size that works is 4");
  plan.layout.pipeline = {.schedule = PipelineSchedule::interleaved, .ranks = 3, .chunks = 2};
  EXPECT_THAT(refusal(), HasSubstr("3 with 2 stages per rank: 6 stages"));
  EXPECT_THAT(refusal(), HasSubstr("the nearest size that works is 2"));
  plan.layout.pipeline = {.ranks = 4};
  EXPECT_EQ(refusal(), "");
  plan.layout.pipeline.partition.method = "type:block";
  EXPECT_THAT(refusal(), HasSubstr("is found in 2 of the Units' names"));
  plan.layout.pipeline.partition = {.method = "uniform", .first_less = 3};
  EXPECT_THAT(refusal(), HasSubstr("pipeline_parallel_first_stage_less_layers = 3"));
}

}  // namespace
}  // namespace nought::pipeline_cut_test
