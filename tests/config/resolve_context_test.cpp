#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/parallel/context_method.h"

namespace nought::resolve_context_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run with these keys of parallelism_config, and more sections.
std::string with(const std::string& args, const std::string& more = "") {
  return fmt::format(R"({{"training": {{"parallelism_config": {{{}}}}}{}}})", args, more);
}

TEST(ResolveContext, ranks_that_share_sequences_see_the_same_samples) {
  const RunPlan plan = plan_of(with(R"("cp_size": 2, "tp_size": 2)"), 8);
  EXPECT_EQ(plan.layout.context_ranks, 2);
  EXPECT_EQ(plan.layout.tensor_ranks, 2);
  EXPECT_EQ(plan.layout.shard_ranks(), 2);
  EXPECT_EQ(plan.layout.data_ranks(), 2);
  EXPECT_EQ(plan.layout.train_batch(), 2 * plan.layout.micro_batch);
  EXPECT_FALSE(plan.layout.context_method) << "the model chooses";
  EXPECT_EQ(value_of(plan, "parallelism_config.cp_size"), "2");
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_shard_size"), "world_size / tp_size / cp_size");
  EXPECT_THAT(describe_mesh(plan), ElementsAre(HasSubstr("tensor"), HasSubstr("context"), HasSubstr("shard")));
  EXPECT_EQ(plan_of(with(R"("cp_size": 2, "pp_size": 2)"), 4).layout.shard_ranks(), 1);
}

TEST(ResolveContext, cp_comm_type_names_the_method) {
  const auto method = [](const char* type) {
    return plan_of(with(fmt::format(R"("cp_size": 4, "cp_comm_type": "{}")", type)), 4).layout.context_method;
  };
  EXPECT_EQ(method("p2p"), ContextMethod::ring);
  EXPECT_EQ(method("all_gather"), ContextMethod::gather);
  EXPECT_EQ(method("auto"), std::nullopt);
  EXPECT_THAT(error_of(with(R"("cp_size": 4, "cp_comm_type": "a2a")"), 4),
              HasSubstr("cp_comm_type = \"a2a\": expected p2p, all_gather or auto; Ulysses is sp_size"));
  EXPECT_THAT(plan_of(with(R"("cp_comm_type": "p2p")"), 4).warnings,
              ElementsAre(HasSubstr("cp_comm_type has no effect: cp_size is 1")));
}

TEST(ResolveContext, ulysses_is_sp_size_or_deepspeeds_key) {
  for (const std::string& text :
       {with(R"("sp_size": 2)"), std::string(R"({"deepspeed": {"sequence_parallel_size": 2}})"),
        with(R"("sp_size": 2)", R"(, "deepspeed": {"sequence_parallel_size": 2})")}) {
    const RunPlan plan = plan_of(text, 4);
    EXPECT_EQ(plan.layout.context_ranks, 2) << text;
    EXPECT_EQ(plan.layout.context_method, ContextMethod::heads) << text;
    EXPECT_EQ(plan.layout.data_ranks(), 2) << text;
  }
  EXPECT_THAT(error_of(with(R"("sp_size": 4)", R"(, "deepspeed": {"sequence_parallel_size": 2})"), 4),
              HasSubstr("sequence_parallel_size = 2 contradicts RUN.json: training.parallelism_config.sp_size = 4"));
}

TEST(ResolveContext, sizes_that_cannot_be_are_refused_with_the_nearest_that_can) {
  EXPECT_THAT(error_of(with(R"("cp_size": 2, "sp_size": 2)"), 4),
              HasSubstr("in one of the two ways: write 1 for one of them"));
  EXPECT_THAT(error_of(with(R"("cp_size": 3)"), 4),
              HasSubstr("cp_size = 3: 4 ranks cannot be divided by it; the nearest size that can is 2"));
  EXPECT_THAT(error_of(with(R"("cp_size": 4, "tp_size": 2)"), 4),
              HasSubstr("2 ranks, left of 4 by tp_size 2, cannot be divided by it"));
  EXPECT_THAT(error_of(with(R"("cp_size": 2, "tp_size": 4)"), 4),
              HasSubstr("cp_size = 2: 1 rank, left of 4 by tp_size 4, cannot be divided by it"));
  EXPECT_THAT(error_of(with(R"("cp_size": 2, "tp_size": 2, "pp_size": 2)"), 4),
              HasSubstr("1 rank, left of 4 by tp_size 2 and pp_size 2, cannot be divided by it"));
  EXPECT_THAT(error_of(with(R"("sp_size": 0)"), 4), HasSubstr("sp_size: expected at least 1, got 0"));
  EXPECT_THAT(error_of(with(R"("cp_size": 4)", R"(, "data": {"seq_length": 7})"), 4),
              HasSubstr("data.seq_length = 7: each of the 4 ranks of cp_size needs 2 tokens of a sequence: write 8 or "
                        "more, or cp_size 2"));
  EXPECT_EQ(plan_of(with(R"("cp_size": 4)", R"(, "data": {"seq_length": 8})"), 4).layout.seq_length, 8);
  EXPECT_THAT(error_of(with(R"("cp_size": 2, "dp_shard_size": 4)"), 4),
              HasSubstr("with tp_size 1 and cp_size 2 write 2, or leave it out"));
}

TEST(ResolveContext, experts_lie_over_ranks_that_have_different_tokens) {
  const RunPlan plan = plan_of(with(R"("cp_size": 2, "ep_size": 4)"), 4);
  EXPECT_EQ(plan.layout.expert_ranks, 4);
  EXPECT_EQ(plan.layout.shard_ranks(), 2);
  EXPECT_THAT(error_of(with(R"("cp_size": 2, "ep_size": 3)"), 4), HasSubstr("the nearest size that can is 2"));
}

}  // namespace
}  // namespace nought::resolve_context_test
