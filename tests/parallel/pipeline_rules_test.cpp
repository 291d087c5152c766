// What pipelines are called, and which of them are refused with which advice.
#include "nought/parallel/pipeline_rules.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::pipeline_rules_test {
namespace {

using S = PipelineSchedule;

TEST(PipelineRules, schedules_have_the_names_of_torch) {
  for (const S schedule : {S::gpipe, S::one_f_one_b, S::interleaved, S::zbh1, S::zbv})
    EXPECT_EQ(parse_pipeline_schedule(name_of(schedule)), schedule);
  EXPECT_EQ(parse_pipeline_schedule("interleaved1f1b"), S::interleaved);
  EXPECT_EQ(test::message_of<ConfigError>([] { parse_pipeline_schedule("2F2B"); }),
            "pipeline_parallel_schedule = \"2F2B\" is no schedule; there are GPipe, 1F1B, Interleaved1F1B, ZBH1, "
            "ZBVZeroBubble");
}

TEST(PipelineRules, a_wrong_number_of_stages_per_rank_is_refused_with_the_nearest_that_runs) {
  for (const S schedule : {S::gpipe, S::one_f_one_b, S::interleaved, S::zbh1, S::zbv})
    EXPECT_NO_THROW(check_chunks({schedule, 4, default_chunks(schedule)}));
  EXPECT_NO_THROW(check_chunks({S::interleaved, 4, 4}));
  const auto message = [](const Pipeline& pipeline) {
    return test::message_of<ConfigError>([&] { check_chunks(pipeline); });
  };
  EXPECT_EQ(message({S::zbh1, 4, 2}),
            "virtual_pipeline_size = 2: ZBH1 runs one stage per rank; use 1, or the schedule Interleaved1F1B");
  EXPECT_EQ(message({S::interleaved, 4, 1}),
            "virtual_pipeline_size = 1: Interleaved1F1B runs two stages or more per rank; use 2, or the schedule 1F1B");
  EXPECT_EQ(message({S::zbv, 4, 3}), "virtual_pipeline_size = 3: ZBVZeroBubble runs two stages per rank; use 2");
}

TEST(PipelineRules, micro_batches_that_make_no_equal_rounds_are_refused_with_the_nearest_that_do) {
  for (const S schedule : {S::gpipe, S::one_f_one_b, S::zbh1, S::zbv})
    for (const int64_t count : {1, 2, 13}) EXPECT_NO_THROW(check_micro_batches({schedule, 4, 1}, count));
  for (const int64_t count : {1, 3, 4, 7, 8, 10, 12, 16})
    EXPECT_NO_THROW(check_micro_batches({S::interleaved, 4, 2}, count));
  EXPECT_EQ(test::message_of<ConfigError>([] {
              check_micro_batches({S::interleaved, 4, 2}, 13);
            }),
            "13 micro-batches per step: Interleaved1F1B on 4 pipeline ranks forwards them in 3 equal rounds, which do "
            "not divide them; the nearest gradient_accumulation_steps that work are 12 and 15");
  EXPECT_EQ(test::message_of<ConfigError>([] {
              check_micro_batches({S::gpipe, 4, 1}, 0);
            }),
            "0 micro-batches: a step has at least one");
}

TEST(PipelineRules, partitions_have_the_names_of_deepspeed) {
  for (const char* name : {"parameters", "uniform", "profile", "type:block|head"})
    EXPECT_EQ(parse_partition(name), name);
  EXPECT_EQ(parse_partition("best"), "parameters");
  EXPECT_EQ(type_pattern("type:block|head"), "block|head");
  EXPECT_EQ(type_pattern("uniform"), "");
  const auto message = [](const char* name) { return test::message_of<ConfigError>([&] { parse_partition(name); }); };
  EXPECT_EQ(message("type:("), "pipeline partition \"type:(\": \"(\" is not a regular expression");
  EXPECT_THAT(message("type:"), testing::HasSubstr("write an expression"));
  EXPECT_THAT(message("balanced"), testing::HasSubstr("it is \"parameters\", \"best\" (the same), \"uniform\""));
}

}  // namespace
}  // namespace nought::pipeline_rules_test
