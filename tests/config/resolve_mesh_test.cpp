#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using testing::HasSubstr;

TEST(ResolveMesh, all_ranks_shard_unless_the_mesh_says_otherwise) {
  const auto with = [](const std::string& args) {
    return fmt::format(R"({{"training": {{"parallelism_config": {{{}}}}}}})", args);
  };
  for (const char* args : {"", R"("tp_size": 1, "cp_size": 1, "dp_replicate_size": 1)"})
    EXPECT_FALSE(plan_of(with(args), 4).mesh.has_value());
  const RunPlan plan = plan_of(with(R"("dp_shard_size": 4)"), 4);
  EXPECT_EQ(plan.mesh->shard, 4);
  EXPECT_EQ(reason_of(plan, "parallelism_config.dp_shard_size"), "training.parallelism_config.dp_shard_size");
  EXPECT_THAT(error_of(with(R"("dp_shard_size": 2)"), 4), HasSubstr("dp_shard_size = 2: the product of"));
  EXPECT_THAT(error_of(with(R"("dp_replicate_size": 2)"), 4), HasSubstr("dp_replicate_size = 2: replicas"));
  EXPECT_THAT(error_of(with(R"("cp_size": 4)"), 4), HasSubstr("cp_size = 4: context parallelism is not"));
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
    EXPECT_EQ(plan.mesh->tensor, 2);
    EXPECT_EQ(plan.mesh->shard, 4);
    EXPECT_EQ(plan.data_ranks(), 4);
    EXPECT_EQ(plan.train_batch, 60);
    EXPECT_EQ(plan.accumulation, 5);
  }
  const auto with = [](const std::string& args, const std::string& more = "") {
    return fmt::format(R"({{"training": {{{}"parallelism_config": {{{}}}}}}})", more, args);
  };
  EXPECT_EQ(reason_of(plan_of(with(R"("tp_size": 2)"), 4), "parallelism_config.tp_size"),
            "training.parallelism_config.tp_size");
  EXPECT_THAT(error_of(with(R"("tp_size": 3)"), 4),
              HasSubstr("tp_size = 3: 4 ranks cannot be divided by it; the nearest "
                        "size that can is 2"));
  EXPECT_THAT(error_of(with(R"("tp_size": 2, "dp_shard_size": 4)"), 4), HasSubstr("with tp_size 2 it is 2"));
  EXPECT_THAT(error_of(with(R"("tp_size": 0)"), 4), HasSubstr("tp_size: expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"training": {"parallelism_config": {"tp_size": 4}},
                           "deepspeed": {"tensor_parallel": {"autotp_size": 2}}})",
                       4),
              HasSubstr("contradicts"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
                           "tensor_parallel": {"autotp_size": 2}}})",
                       4),
              HasSubstr("x data-parallel ranks 2 = 4"));
  EXPECT_THAT(error_of(with(R"("tp_size": 2)", R"("optim": "muon", )"), 4), HasSubstr("Muon orthogonalises"));
  for (const char* recipe : {"delayed", "current"})
    EXPECT_EQ(plan_of(with(R"("tp_size": 2)", fmt::format(R"("bf16": true, "fp8": "{}", )", recipe)), 4).mesh->tensor,
              2);
}

}  // namespace
}  // namespace nought
