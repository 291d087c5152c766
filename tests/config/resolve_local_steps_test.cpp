// The sections diloco and async_data_parallel: what they resolve to, and what they cannot be combined with.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_local_steps_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::Contains;
using testing::HasSubstr;

const std::vector<std::string> kWorkers{"training.parallelism_config.dp_replicate_size=2",
                                        "training.diloco.sync_every=20"};

std::vector<std::string> with(std::vector<std::string> some, const std::vector<std::string>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

TEST(ResolveLocalSteps, replicas_become_workers_with_the_numbers_of_the_papers) {
  const RunPlan plan = plan_of(test::kExampleRun, 4, kWorkers);
  ASSERT_TRUE(plan.layout.local_steps);
  EXPECT_EQ(plan.layout.local_steps->sync_every, 20);
  EXPECT_EQ(plan.layout.local_steps->fragments, 1);
  EXPECT_EQ(plan.layout.local_steps->delay, 0);
  EXPECT_EQ(plan.layout.local_steps->lr, 0.7);
  EXPECT_EQ(plan.layout.local_steps->momentum, 0.9);
  EXPECT_TRUE(plan.layout.local_steps->nesterov);
  EXPECT_EQ(value_of(plan, "diloco.sync_every"), "20");
  EXPECT_EQ(reason_of(plan, "diloco.outer_lr"), "default of training.diloco.outer_lr");
  EXPECT_EQ(value_of(plan, "diloco.workers"), "2");
  EXPECT_FALSE(plan_of(test::kExampleRun, 4).layout.local_steps);
}

TEST(ResolveLocalSteps, fragments_that_do_not_fit_their_interval_are_refused) {
  const auto error = [](const std::vector<std::string>& more) {
    return error_of(test::kExampleRun, 4, with(kWorkers, more));
  };
  EXPECT_THAT(error({"training.diloco.num_fragments=3"}),
              HasSubstr("it must be a multiple of that; the next one is 21"));
  EXPECT_THAT(error({"training.diloco.num_fragments=4", "training.diloco.fragment_sync_delay=5"}),
              HasSubstr("the delay is at most 4"));
  EXPECT_THAT(error({"training.diloco.fragment_update_alpha=1.5"}), HasSubstr("expected a number in [0, 1], got 1.5"));
  EXPECT_THAT(error({"training.diloco.outer_momentum=1"}), HasSubstr("expected a number in [0, 1), got 1"));
  EXPECT_THAT(error({"training.diloco.sync_every=0"}), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(error_of(test::kExampleRun, 4, {"training.diloco.outer_lr=1"}),
              HasSubstr("outer_lr without training.diloco.sync_every"));
}

TEST(ResolveLocalSteps, what_cannot_be_combined_is_refused_by_name) {
  const auto error = [](const std::vector<std::string>& more) {
    return error_of(test::kExampleRun, 4, with(kWorkers, more));
  };
  EXPECT_THAT(error_of(test::kExampleRun, 4, {"training.diloco.sync_every=20"}), HasSubstr("dp_replicate_size"));
  EXPECT_THAT(error({"training.delayed_update=true"}), HasSubstr("local steps and training.delayed_update"));
  EXPECT_THAT(error({"training.log_straggler=true"}), HasSubstr("local steps and training.log_straggler"));
  EXPECT_THAT(error({"training.load_best_model_at_end=true", "training.eval_strategy=steps", "training.eval_steps=10",
                     "data.validation_fraction=0.1"}),
              HasSubstr("local steps and training.load_best_model_at_end"));
  EXPECT_THAT(plan_of(test::kExampleRun, 4,
                      with(kWorkers,
                           {"training.eval_strategy=steps", "training.eval_steps=30", "data.validation_fraction=0.1"}))
                  .warnings,
              Contains(HasSubstr("are of the first worker's weights")));
}

TEST(ResolveLocalSteps, the_ranks_of_a_worker_may_send_each_other_codes) {
  const std::vector<std::string> codes{"deepspeed.zero_optimization.stage=3",
                                       "deepspeed.zero_optimization.zero_quantized_weights=true",
                                       "deepspeed.zero_optimization.zero_quantized_gradients=true"};
  const RunPlan plan = plan_of(test::kExampleRun, 4, with(kWorkers, codes));
  EXPECT_TRUE(plan.layout.local_steps);
  EXPECT_EQ(plan.layout.sharding.codes.weight_bits, 8);
  EXPECT_EQ(plan.layout.sharding.codes.gradient_bits, 4);
  EXPECT_THAT(error_of(test::kExampleRun, 4,
                       with(with(kWorkers, codes), {"deepspeed.zero_optimization.zeropp_loco_param.err_beta=0.8"})),
              HasSubstr("local steps and zeropp_loco_param cannot be combined"));
}

TEST(ResolveAsync, servers_take_stage_1_and_ranks_of_one_axis) {
  const std::vector<std::string> asynchronous{"training.async_data_parallel.staleness=2",
                                              "deepspeed.zero_optimization.stage=1"};
  EXPECT_EQ(plan_of(test::kExampleRun, 4, asynchronous).layout.staleness, 2);
  EXPECT_EQ(value_of(plan_of(test::kExampleRun, 4, asynchronous), "async_data_parallel.staleness"), "2");
  const auto error = [&](const std::vector<std::string>& more) {
    return error_of(test::kExampleRun, 4, with(asynchronous, more));
  };
  EXPECT_THAT(error({"deepspeed.zero_optimization.stage=2"}), HasSubstr("the stage is 2"));
  EXPECT_THAT(error({"training.parallelism_config.tp_size=2"}), HasSubstr("ranks that share matrices"));
  EXPECT_THAT(error({"training.parallelism_config.dp_replicate_size=2"}), HasSubstr("and replicas"));
  EXPECT_THAT(error({"training.on_nonfinite=skip"}), HasSubstr("on_nonfinite"));
  EXPECT_THAT(error({"training.delayed_update=true"}), HasSubstr("delayed_update"));
  EXPECT_THAT(error({"training.async_data_parallel.staleness=-1"}), HasSubstr("expected at least 0, got -1"));
}

}  // namespace
}  // namespace nought::resolve_local_steps_test
