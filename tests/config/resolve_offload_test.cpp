// Where optimizer states live: what DeepSpeed's keys come to, and what is refused.
#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunPlan plan_of(const std::string& zero) {
  return test::plan_of(R"({"training": {"output_dir": "out"}, "deepspeed": {"zero_optimization": )" + zero + "}}");
}
std::string nvme(const std::string& keys) {
  return R"({"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/fast")" + keys + "}}";
}

TEST(ResolveOffload, the_device_is_the_default_and_auto) {
  for (const char* zero : {"{}", R"({"offload_optimizer": {"device": "none"}, "sub_group_size": 1e9})",
                           R"({"offload_optimizer": {"device": "auto"}, "sub_group_size": "auto"})",
                           R"({"offload_optimizer": {"device": null, "nvme_path": null, "pin_memory": true}})"}) {
    const RunPlan plan = plan_of(zero);
    EXPECT_EQ(plan.offload_optimizer.home, Pool::device) << zero;
    EXPECT_THAT(plan.warnings, IsEmpty()) << zero;
  }
}

TEST(ResolveOffload, to_the_host_makes_no_copy_on_a_cpu_and_says_so) {
  const RunPlan plan = plan_of(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})");
  EXPECT_EQ(plan.offload_optimizer.home, Pool::host);
  EXPECT_THAT(plan.warnings, ElementsAre(AllOf(HasSubstr("offload_optimizer.device = \"cpu\" has no effect"),
                                               HasSubstr("no copy is made"))));
}

TEST(ResolveOffload, files_are_taken_at_every_stage) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    std::string zero = nvme("");
    zero.replace(zero.find("1"), 1, stage);
    const RunPlan plan = plan_of(zero);
    EXPECT_EQ(plan.offload_optimizer.home, Pool::file);
    EXPECT_EQ(plan.offload_optimizer.folder, "/fast");
    EXPECT_EQ(plan.offload_optimizer.tiles(), 1);
    EXPECT_THAT(plan.warnings, IsEmpty());
  }
}

TEST(ResolveOffload, a_tile_is_no_larger_than_pays) {
  const auto tile = [](const std::string& size) {
    std::string zero = nvme("");
    zero.insert(1, R"("sub_group_size": )" + size + ", ");
    return plan_of(zero);
  };
  EXPECT_EQ(tile("1000").offload_optimizer.sub_group, 1000);
  const RunPlan whole = tile("1e9");
  EXPECT_EQ(whole.offload_optimizer.sub_group, OffloadOptions::kMostElements);
  EXPECT_THAT(test::reason_of(whole, "sub_group_size"), HasSubstr("= 1000000000; more than this only takes memory"));
  EXPECT_THAT(message_of<ConfigError>([&] { tile("0"); }), HasSubstr("sub_group_size"));
  EXPECT_THAT(plan_of(R"({"sub_group_size": 5})").warnings, ElementsAre(HasSubstr("sub_group_size = 5 has no effect")));
}

TEST(ResolveOffload, buffers_bound_what_is_in_memory_at_once) {
  const auto tiles = [](const std::string& keys) { return plan_of(nvme(keys)).offload_optimizer.tiles(); };
  EXPECT_EQ(tiles(R"(, "pipeline_read": true)"), 1);
  EXPECT_EQ(tiles(R"(, "pipeline_read": true, "buffer_count": 8)"), 2);
  EXPECT_EQ(tiles(R"(, "pipeline_read": true, "pipeline_write": true, "buffer_count": 12)"), 3);
  EXPECT_EQ(tiles(R"(, "buffer_count": 12)"), 1);
  EXPECT_THAT(test::reason_of(plan_of(nvme(R"(, "pipeline_read": true)")), "tiles_in_memory"),
              AllOf(HasSubstr("buffer_count = 4"), HasSubstr("2 tiles take 8")));
  EXPECT_THAT(message_of<ConfigError>([&] { tiles(R"(, "buffer_count": 3)"); }),
              AllOf(HasSubstr("buffer_count = 3"), HasSubstr("write 4 or more")));
}

TEST(ResolveOffload, a_missing_folder_and_an_unknown_device_are_refused_in_one_line) {
  for (const char* zero : {R"({"offload_optimizer": {"device": "nvme"}})",
                           R"({"offload_optimizer": {"device": "nvme", "nvme_path": null}})",
                           R"({"offload_optimizer": {"device": "nvme", "nvme_path": ""}})"})
    EXPECT_THAT(message_of<ConfigError>([&] { plan_of(zero); }),
                AllOf(HasSubstr("offload_optimizer.device = \"nvme\" without nvme_path: name a folder"),
                      HasSubstr("in zero_opt")));
  EXPECT_THAT(message_of<ConfigError>([&] { plan_of(R"({"offload_optimizer": {"device": "disk"}})"); }),
              HasSubstr("expected \"none\", \"cpu\" or \"nvme\""));
}

TEST(ResolveOffload, the_section_aio_counts_beside_files_alone) {
  const auto plan = [](const std::string& zero) {
    return test::plan_of(R"({"deepspeed": {"aio": {"queue_depth": 32, "thread_count": 2}, "zero_optimization": )" +
                         zero + "}}");
  };
  EXPECT_EQ(plan(nvme("")).offload_optimizer.aio.queue_depth, 32);
  EXPECT_EQ(plan(nvme("")).offload_optimizer.aio.intra_op_parallelism, 2);
  EXPECT_THAT(plan(nvme("")).warnings, IsEmpty());
  EXPECT_EQ(plan("{}").warnings.size(), 2u);
}

TEST(ResolveOffload, keys_of_other_devices_are_explained) {
  const RunPlan plan = plan_of(nvme(R"(, "pin_memory": true, "fast_init": true, "ratio": 0.3)"));
  EXPECT_THAT(test::reason_of(plan, "pin_memory"), HasSubstr("no device reads pages of the host"));
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("fast_init = true has no effect"), HasSubstr("ratio = 0.3 has no")));
}

}  // namespace
}  // namespace nought
