// DeepSpeed's section aio, beside which nothing is offloaded to files.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_aio_test {
namespace {

using test::error_of;
using test::plan_of;
using testing::ElementsAre;
using testing::IsEmpty;

std::string with(const std::string& aio) { return fmt::format(R"({{"deepspeed": {{"aio": {{{}}}}}}})", aio); }

TEST(ResolveAio, keys_have_no_effect_and_say_so_where_nothing_is_offloaded_to_files) {
  EXPECT_THAT(plan_of(with(R"("block_size": 16777216, "queue_depth": 32, "thread_count": 2, "single_submit": true,
                              "overlap_events": false)"))
                  .warnings,
              ElementsAre("RUN.json: deepspeed.aio.block_size = 16777216 has no effect: nothing is offloaded to files",
                          "RUN.json: deepspeed.aio.queue_depth = 32 has no effect: nothing is offloaded to files",
                          "RUN.json: deepspeed.aio.thread_count = 2 has no effect: nothing is offloaded to files",
                          "RUN.json: deepspeed.aio.single_submit = true has no effect: nothing is offloaded to files",
                          "RUN.json: deepspeed.aio.overlap_events = false has no effect: nothing is offloaded to "
                          "files"));
  EXPECT_EQ(plan_of(with(R"("block_size": 65536)")).layout.sharding.offload_optimizer.tier.aio, AioOptions());
  EXPECT_THAT(plan_of(R"({"training": {"aio_backend": "threads"}})").warnings,
              ElementsAre("RUN.json: training.aio_backend = threads has no effect: nothing is offloaded to files"));
}

TEST(ResolveAio, defaults_auto_and_other_names_of_the_threads_are_accepted) {
  EXPECT_THAT(plan_of(with(R"("block_size": "auto", "queue_depth": 8, "intra_op_parallelism": 1, "thread_count": 1,
                              "num_threads": 1, "single_submit": false, "overlap_events": "auto", "use_gds": false)"))
                  .warnings,
              IsEmpty());
  EXPECT_EQ(error_of(with(R"("queue_dept": 8)")),
            "RUN.json: deepspeed.aio.queue_dept: unknown key (did you mean \"queue_depth\"?)");
}

}  // namespace
}  // namespace nought::resolve_aio_test
