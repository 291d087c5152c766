#include "support/environment.h"
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_replicas_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::string with(const std::string& sizes, const std::string& zero = "") {
  return fmt::format(
      R"({{"training": {{"parallelism_config": {{{}}}}}, "deepspeed": {{"zero_optimization": {{{}}}}}}})", sizes, zero);
}

TEST(ResolveReplicas, replicas_and_shards_are_the_ranks_that_read_different_samples) {
  for (const char* sizes : {R"("dp_replicate_size": 2)", R"("dp_replicate_size": 2, "dp_shard_size": 4)"}) {
    const RunPlan plan = plan_of(with(sizes), 8);
    EXPECT_EQ(plan.layout.replicas, 2);
    EXPECT_EQ(plan.layout.shard_ranks(), 4);
    EXPECT_EQ(plan.layout.data_ranks(), 8);
    EXPECT_EQ(value_of(plan, "parallelism_config.dp_replicate_size"), "2");
    EXPECT_THAT(describe_mesh(plan), ElementsAre("shard           4   ranks 0 1 2 3 | 4 5 6 7",
                                                 "replicate       2   ranks 0 4 | 1 5 | 2 6 | 3 7"));
  }
  const RunPlan plan = plan_of(with(R"("dp_replicate_size": 2, "tp_size": 2, "pp_size": 2, "ep_size": 2)"), 16);
  EXPECT_EQ(plan.layout.replicas, 2);
  EXPECT_EQ(plan.layout.shard_ranks(), 2);
  EXPECT_EQ(plan.layout.expert_ranks, 2);
  EXPECT_EQ(plan.layout.train_batch(), plan.layout.micro_batch * plan.layout.accumulation * 4);
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_shard_size"), "world_size / tp_size / pp_size / dp_replicate_size");
}

TEST(ResolveReplicas, sizes_that_are_not_the_ranks_are_refused_with_those_that_are) {
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 3)"), 8),
              HasSubstr("dp_replicate_size = 3: 8 data-parallel ranks cannot be divided by it; the nearest size that "
                        "can is 2"));
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 0)"), 8), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 2, "dp_shard_size": 8)"), 8),
              HasSubstr("with tp_size 1 and dp_replicate_size 2 write 4, or leave it out"));
  EXPECT_THAT(error_of(with(R"("dp_shard_size": 2)"), 8),
              HasSubstr("write 8, or leave it out; for 4 replicas write dp_replicate_size 4"));
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 4, "ep_size": 4)"), 8),
              HasSubstr("ep_size = 4: 2 data-parallel ranks of a replica cannot be divided by it; the nearest size "
                        "that can is 2"));
}

TEST(ResolveReplicas, deepspeeds_shard_size_says_how_many_ranks_share_out_the_states) {
  const RunPlan plan = plan_of(with("", R"("stage": 3, "mics_shard_size": 2)"), 8);
  EXPECT_EQ(plan.layout.replicas, 4);
  EXPECT_EQ(plan.layout.shard_ranks(), 2);
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_replicate_size"), "deepspeed: zero_optimization.mics_shard_size");
  // All ranks, which is stage 3.
  const RunPlan all = plan_of(with("", R"("stage": 3, "mics_shard_size": 8)"), 8);
  EXPECT_EQ(all.layout.replicas, 1);
  EXPECT_EQ(all.layout.shard_ranks(), 8);
  EXPECT_EQ(plan_of(with("", R"("stage": 1, "mics_shard_size": -1)"), 8).layout.shard_ranks(), 8);
  EXPECT_EQ(plan_of(with(R"("dp_replicate_size": 4, "dp_shard_size": 2)", R"("stage": 3, "mics_shard_size": 2)"), 8)
                .layout.replicas,
            4);
}

TEST(ResolveReplicas, deepspeeds_shard_size_is_refused_where_it_cannot_be) {
  EXPECT_THAT(error_of(with("", R"("stage": 2, "mics_shard_size": 2)"), 8),
              HasSubstr("mics_shard_size = 2: MiCS shards parameters, which is stage 3, and the stage is 2: for shards "
                        "among 2 ranks at stage 2 write training.parallelism_config.dp_replicate_size = 4 instead"));
  EXPECT_THAT(error_of(with("", R"("stage": 3, "mics_shard_size": 3)"), 8),
              HasSubstr("mics_shard_size = 3: 8 data-parallel ranks cannot be divided by it; the nearest size that can "
                        "is 2"));
  EXPECT_THAT(error_of(with("", R"("stage": 3, "mics_shard_size": 0)"), 8), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 2)", R"("stage": 3, "mics_shard_size": 2)"), 8),
              HasSubstr("dp_replicate_size = 2: shards among 2 of 8 data-parallel ranks make 4 replicas: write 4, or "
                        "remove one"));
  EXPECT_THAT(error_of(with(R"("dp_shard_size": 4)", R"("stage": 3, "mics_shard_size": 2)"), 8),
              HasSubstr("mics_shard_size = 2 contradicts RUN.json: training.parallelism_config.dp_shard_size = 4"));
}

TEST(ResolveReplicas, parameters_are_gathered_by_hosts_where_shards_lie_on_several) {
  const std::string zero = R"("stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": true)";
  const test::Environment two{{"LOCAL_WORLD_SIZE", "2"}};
  const RunPlan plan = plan_of(with("", zero), 8);
  EXPECT_EQ(plan.layout.host_ranks, 2);
  EXPECT_TRUE(plan.warnings.empty());
  {
    const test::Environment four{{"LOCAL_WORLD_SIZE", "4"}};
    EXPECT_THAT(plan_of(with("", zero), 8).warnings,
                ElementsAre(HasSubstr("mics_hierarchical_params_gather has no effect: with 4 ranks on a host")));
  }
  EXPECT_THAT(plan_of(with("", R"("stage": 3, "mics_hierarchical_params_gather": true)"), 8).warnings,
              ElementsAre(HasSubstr("has no effect: mics_shard_size is not given")));
}

}  // namespace
}  // namespace nought::resolve_replicas_test
