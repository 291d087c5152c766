// Where optimizer states live: what DeepSpeed's keys come to, and what is refused.
#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/zero/offload_options.h"

namespace nought::resolve_offload_test {
namespace {

using test::message_of;
using test::plan_of_zero;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string nvme(const std::string& keys) {
  return R"({"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/fast")" + keys + "}}";
}

TEST(ResolveOffload, the_device_is_the_default_and_auto) {
  for (const char* zero : {"{}", R"({"offload_optimizer": {"device": "none"}, "sub_group_size": 1e9})",
                           R"({"offload_optimizer": {"device": "auto"}, "sub_group_size": "auto"})",
                           R"({"offload_optimizer": {"device": null, "nvme_path": null, "pin_memory": true}})"}) {
    const RunPlan plan = plan_of_zero(zero);
    EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.pool, Pool::device) << zero;
    EXPECT_THAT(plan.warnings, IsEmpty()) << zero;
  }
}

TEST(ResolveOffload, to_the_host_makes_no_copy_on_a_cpu_and_says_so) {
  const RunPlan plan = plan_of_zero(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})");
  EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.pool, Pool::host);
  EXPECT_THAT(plan.warnings, ElementsAre(AllOf(HasSubstr("offload_optimizer.device = \"cpu\" has no effect"),
                                               HasSubstr("no copy is made"))));
}

TEST(ResolveOffload, files_are_taken_at_every_stage) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    std::string zero = nvme("");
    zero.replace(zero.find("1"), 1, stage);
    const RunPlan plan = plan_of_zero(zero);
    EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.pool, Pool::file);
    EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.folder, "/fast");
    EXPECT_EQ(plan.layout.sharding.offload_optimizer.tiles(), 1);
    EXPECT_THAT(plan.warnings, IsEmpty());
  }
}

TEST(ResolveOffload, a_tile_is_no_larger_than_pays) {
  const auto tile = [](const std::string& size) {
    std::string zero = nvme("");
    zero.insert(1, R"("sub_group_size": )" + size + ", ");
    return plan_of_zero(zero);
  };
  EXPECT_EQ(tile("1000").layout.sharding.offload_optimizer.sub_group, 1000);
  const RunPlan whole = tile("1e9");
  EXPECT_EQ(whole.layout.sharding.offload_optimizer.sub_group, OffloadOptions::kMostElements);
  EXPECT_THAT(test::reason_of(whole, "sub_group_size"), HasSubstr("= 1000000000; more than this only takes memory"));
  EXPECT_THAT(message_of<ConfigError>([&] { tile("0"); }), HasSubstr("sub_group_size"));
  EXPECT_THAT(plan_of_zero(R"({"sub_group_size": 5})").warnings,
              ElementsAre(HasSubstr("sub_group_size = 5 has no effect")));
}

TEST(ResolveOffload, buffers_bound_what_is_in_memory_at_once) {
  const auto tiles = [](const std::string& keys) {
    return plan_of_zero(nvme(keys)).layout.sharding.offload_optimizer.tiles();
  };
  EXPECT_EQ(tiles(R"(, "pipeline_read": true)"), 1);
  EXPECT_EQ(tiles(R"(, "pipeline_read": true, "buffer_count": 8)"), 2);
  EXPECT_EQ(tiles(R"(, "pipeline_read": true, "pipeline_write": true, "buffer_count": 12)"), 3);
  EXPECT_EQ(tiles(R"(, "buffer_count": 12)"), 1);
  EXPECT_THAT(test::reason_of(plan_of_zero(nvme(R"(, "pipeline_read": true)")), "tiles_in_memory"),
              AllOf(HasSubstr("buffer_count = 4"), HasSubstr("2 tiles take 8")));
  EXPECT_THAT(message_of<ConfigError>([&] { tiles(R"(, "buffer_count": 3)"); }),
              AllOf(HasSubstr("buffer_count = 3"), HasSubstr("write 4 or more")));
}

TEST(ResolveOffload, a_missing_folder_and_an_unknown_device_are_refused_in_one_line) {
  for (const char* zero : {R"({"offload_optimizer": {"device": "nvme"}})",
                           R"({"offload_optimizer": {"device": "nvme", "nvme_path": null}})",
                           R"({"offload_optimizer": {"device": "nvme", "nvme_path": ""}})"})
    EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(zero); }),
                AllOf(HasSubstr("offload_optimizer.device = \"nvme\" without nvme_path: name a folder"),
                      HasSubstr("in zero_opt")));
  EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(R"({"offload_optimizer": {"device": "disk"}})"); }),
              HasSubstr("expected \"none\", \"cpu\" or \"nvme\""));
}

TEST(ResolveOffload, the_section_aio_counts_beside_files_alone) {
  const auto plan = [](const std::string& zero) {
    return test::plan_of(R"({"deepspeed": {"aio": {"queue_depth": 32, "thread_count": 2}, "zero_optimization": )" +
                         zero + "}}");
  };
  EXPECT_EQ(plan(nvme("")).layout.sharding.offload_optimizer.tier.aio.queue_depth, 32);
  EXPECT_EQ(plan(nvme("")).layout.sharding.offload_optimizer.tier.aio.intra_op_parallelism, 2);
  EXPECT_THAT(plan(nvme("")).warnings, IsEmpty());
  EXPECT_EQ(plan("{}").warnings.size(), 2u);
}

TEST(ResolveOffload, updates_are_put_off_by_one_step_on_request_but_not_those_that_need_other_ranks) {
  const auto plan = [](const std::string& training) { return test::plan_of(R"({"training": {)" + training + "}}"); };
  EXPECT_EQ(plan("").layout.sharding.offload_optimizer.delay_after, std::nullopt);
  EXPECT_EQ(plan(R"("delayed_update": true)").layout.sharding.offload_optimizer.delay_after, 40);
  EXPECT_EQ(
      plan(R"("delayed_update": true, "delayed_update_warmup_steps": 0)").layout.sharding.offload_optimizer.delay_after,
      0);
  const RunPlan without = plan(R"("delayed_update_warmup_steps": 3)");
  EXPECT_EQ(without.layout.sharding.offload_optimizer.delay_after, std::nullopt);
  EXPECT_THAT(without.warnings, ElementsAre(HasSubstr("has no effect without training.delayed_update")));
  EXPECT_THAT(message_of<ConfigError>([&] { plan(R"("delayed_update": true, "delayed_update_warmup_steps": -1)"); }),
              HasSubstr("delayed_update_warmup_steps"));
  for (const char* optimizer : {"Lamb", "Muon"})
    EXPECT_THAT(message_of<ConfigError>([&] {
                  test::plan_of(fmt::format(
                      R"({{"training": {{"delayed_update": true}}, "deepspeed": {{"optimizer": {{"type": "{}"}}}}}})",
                      optimizer));
                }),
                AllOf(HasSubstr("training.delayed_update = true with"), HasSubstr(optimizer)));
}

TEST(ResolveOffload, what_stands_before_an_update_keeps_it_from_the_backward_pass_and_is_named) {
  const auto plan = [](const std::string& training, const std::string& more = "") {
    return test::plan_of(R"({"training": {"max_grad_norm": 0)" + training +
                         R"(}, "deepspeed": {"zero_optimization": )" + nvme("") + more + "}}");
  };
  const RunPlan early = plan("");
  EXPECT_TRUE(early.layout.sharding.offload_optimizer.early);
  EXPECT_THAT(test::reason_of(early, "update_beside_backward"), HasSubstr("nothing global"));
  EXPECT_FALSE(early.layout.sharding.offload_optimizer.undo);
  const RunPlan delayed = plan(R"(, "delayed_update": true)");
  EXPECT_FALSE(delayed.layout.sharding.offload_optimizer.early);
  EXPECT_THAT(test::reason_of(delayed, "update_beside_backward"), HasSubstr("the next step"));
}

TEST(ResolveOffload, what_may_change_an_update_makes_it_a_guess_that_is_undone) {
  const auto plan = [](const std::string& training) {
    return test::plan_of(R"({"training": {)" + training + R"(}, "deepspeed": {"zero_optimization": )" + nvme("") +
                         "}}");
  };
  for (const auto& [training, why] : {std::pair(R"("max_grad_norm": 1)", "below max_grad_norm"),
                                      {R"("max_grad_norm": 0, "fp16": true)", "no gradient overflows"},
                                      {R"("on_nonfinite": "skip")", "below max_grad_norm, all gradients are finite"},
                                      {R"("max_grad_norm": 0, "spiky_loss_factor": 5)", "no spike"}}) {
    const RunPlan each = plan(training);
    EXPECT_TRUE(each.layout.sharding.offload_optimizer.early) << training;
    EXPECT_TRUE(each.layout.sharding.offload_optimizer.undo) << training;
    EXPECT_THAT(test::reason_of(each, "update_beside_backward"), HasSubstr(why));
  }
}

TEST(ResolveOffload, updates_wait_for_the_backward_pass_on_request_and_begin_before_where_that_is_possible) {
  const std::string in_files = R"(, "deepspeed": {"zero_optimization": )" + nvme("") + "}";
  const auto plan = [](const std::string& value, const std::string& more) {
    return test::plan_of(R"({"training": {"update_beside_backward": )" + value + "}" + more + "}");
  };
  const auto options = [&](const std::string& value, const std::string& more) {
    return plan(value, more).layout.sharding.offload_optimizer;
  };
  EXPECT_FALSE(options("false", in_files).early);
  EXPECT_FALSE(options("false", in_files).undo);
  EXPECT_TRUE(options("\"auto\"", in_files).undo);
  EXPECT_TRUE(options("true", "").undo) << "in memory";
  EXPECT_FALSE(options("\"auto\"", "").early);
  EXPECT_THAT(test::reason_of(plan("\"auto\"", ""), "update_beside_backward"), HasSubstr("in memory"));
  for (const auto& [more, why] :
       {std::pair(R"(, "deepspeed": {"optimizer": {"type": "Lamb"}})", "ranks talk to each other"),
        {R"(, "deepspeed": {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/tmp",
              "max_in_cpu": 0}}})",
         "between two passes"}})
    EXPECT_THAT(message_of<ConfigError>([&, more = more] { plan("true", more); }),
                AllOf(HasSubstr("update_beside_backward"), HasSubstr(why)));
}

TEST(ResolveOffload, keys_of_other_devices_are_explained) {
  const RunPlan plan = plan_of_zero(nvme(R"(, "pin_memory": true, "fast_init": true)"));
  EXPECT_THAT(test::reason_of(plan, "pin_memory"), HasSubstr("no device reads pages of the host"));
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("fast_init = true has no effect")));
}

TEST(ResolveOffload, the_ratio_is_a_share_of_what_goes_to_files) {
  EXPECT_EQ(plan_of_zero(nvme("")).layout.sharding.offload_optimizer.ratio, 1);
  EXPECT_EQ(plan_of_zero(nvme(R"(, "ratio": 0.3)")).layout.sharding.offload_optimizer.ratio, 0.3);
  for (const char* wrong : {"-0.1", "1.5"})
    EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(nvme(fmt::format(R"(, "ratio": {})", wrong))); }),
                AllOf(HasSubstr("ratio: expected a number in [0, 1], got"), HasSubstr(wrong)));
  EXPECT_THAT(plan_of_zero(R"({"offload_optimizer": {"device": "none", "ratio": 0.3}})").warnings,
              ElementsAre(HasSubstr("ratio = 0.3 has no effect: no optimizer states leave the device")));
}

RunPlan with_gradients(const std::string& training, const std::string& zero, int ranks = 2) {
  return test::plan_of(
      fmt::format(R"({{"training": {{{}}}, "deepspeed": {{"zero_optimization": {}}}}})", training, zero), ranks);
}
std::string nvme_at(int stage, const std::string& optimizer = "", const std::string& more = "") {
  return fmt::format(R"({{"stage": {}, "offload_optimizer": {{"device": "nvme", "nvme_path": "/fast"{}}}{}}})", stage,
                     optimizer, more);
}

TEST(ResolveOffload, gradients_are_in_files_on_request_and_where_all_else_is) {
  const std::string parameters = R"(, "offload_param": {"device": "nvme", "nvme_path": "/fast", "max_in_cpu": 0})";
  const RunPlan memory = with_gradients("", nvme_at(2)),
                asked = with_gradients(R"("offload_gradients": "file")", nvme_at(2));
  EXPECT_EQ(memory.layout.sharding.offload_optimizer.gradients(), Pool::host) << "the device, where that is the host";
  EXPECT_THAT(test::reason_of(memory, "offload_gradients"),
              HasSubstr("training.offload_gradients = \"file\" saves it"));
  EXPECT_EQ(asked.layout.sharding.offload_optimizer.gradients(), Pool::file);
  EXPECT_EQ(test::reason_of(asked, "offload_gradients"), "training.offload_gradients");
  const RunPlan all = with_gradients("", nvme_at(3, "", parameters));
  EXPECT_EQ(all.layout.sharding.offload_optimizer.gradients(), Pool::file);
  EXPECT_THAT(test::reason_of(all, "offload_gradients"), HasSubstr("in files, too"));
  const RunPlan kept = with_gradients(R"("offload_gradients": "device")", nvme_at(3, "", parameters));
  EXPECT_EQ(kept.layout.sharding.offload_optimizer.gradients(), Pool::host);
  EXPECT_TRUE(kept.layout.gradients_stay);
  EXPECT_TRUE(with_gradients(R"("offload_gradients": "device")", "{}").layout.gradients_stay) << "wherever states move";
  EXPECT_FALSE(all.layout.gradients_stay || memory.layout.gradients_stay);
  EXPECT_EQ(
      with_gradients(R"("offload_gradients": "file")", nvme_at(0), 1).layout.sharding.offload_optimizer.gradients(),
      Pool::file)
      << "on one rank";
}

TEST(ResolveOffload, gradients_that_something_else_needs_in_memory_are_refused_in_files_by_its_name) {
  const std::string file = R"("offload_gradients": "file")";
  for (const auto& [training, zero, why] :
       {std::tuple(file, std::string("{}"), "set offload_optimizer.device to \"nvme\""),
        {file, nvme_at(1), "whole gradients at stage 1"},
        {file, nvme_at(2, R"(, "ratio": 0.5)"), "ratio"},
        {file + R"(, "delayed_update": true)", nvme_at(2), "delayed update"},
        {std::string(R"("offload_gradients": "disk")"), nvme_at(2), "expected \"auto\", \"device\" or \"file\""}})
    EXPECT_THAT(message_of<ConfigError>([&, training = training, zero = zero] { with_gradients(training, zero); }),
                AllOf(HasSubstr("training.offload_gradients = "), HasSubstr(why)));
}

RunPlan plan_on(const std::string& text, bool on_gpu) {
  return resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json", {}, {}, on_gpu), 1);
}

/// A GPU can not touch the memory of the host: what moves there moves, and every choice is explained.
TEST(ResolveOffload, with_a_gpu_the_host_is_an_offload_tier) {
  const std::string text = R"({"training": {"output_dir": "out", "max_grad_norm": 0}, "deepspeed": {"zero_optimization":
    {"stage": 3, "sub_group_size": 5000, "offload_optimizer": {"device": "cpu", "ratio": 0.5, "pin_memory": true},
     "offload_param": {"device": "cpu"}}}})";
  EXPECT_EQ(plan_on(text, /*on_gpu=*/false).warnings.size(), 4u)
      << "without effect: two tiers, the ratio, the size of tiles";
  const RunPlan plan = plan_on(text, /*on_gpu=*/true);
  EXPECT_TRUE(plan.layout.on_gpu());
  EXPECT_TRUE(plan.warnings.empty()) << plan.warnings.front();
  EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.pool, Pool::host);
  EXPECT_EQ(plan.layout.sharding.offload_optimizer.sub_group, 5000);
  EXPECT_EQ(plan.layout.sharding.offload_optimizer.ratio, 0.5);
  EXPECT_EQ(plan.layout.sharding.offload_param.tier.pool, Pool::host);
  EXPECT_EQ(test::value_of(plan, "device"), "cuda");
  EXPECT_EQ(test::value_of(plan, "offload_optimizer"), "cpu");
  EXPECT_EQ(test::value_of(plan, "offload_param"), "cpu");
  EXPECT_EQ(test::value_of(plan, "update_beside_backward"), "false");
  EXPECT_THAT(test::reason_of(plan, "update_beside_backward"), HasSubstr("ratio"));
  const auto all_on_host = [](const std::string& training) {
    return plan_on(R"({"training": {)" + training +
                       R"(}, "deepspeed": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}})",
                   /*on_gpu=*/true);
  };
  EXPECT_EQ(test::value_of(all_on_host(R"("max_grad_norm": 0)"), "update_beside_backward"), "true");
  EXPECT_EQ(test::value_of(all_on_host(""), "update_beside_backward"), "false") << "a guess takes the states twice";
  EXPECT_TRUE(all_on_host(R"("host_memory": "1TB")").update_fits_room);
  EXPECT_EQ(test::value_of(all_on_host(R"("update_beside_backward": true)"), "update_beside_backward"), "true");
  EXPECT_THAT(
      message_of<ConfigError>([] { plan_on(R"({"training": {"update_beside_backward": true}})", /*on_gpu=*/true); }),
      HasSubstr("in the memory of the GPU"));
  EXPECT_NE(test::reason_of(plan, "pin_memory").find("always pinned"), std::string::npos);
}

TEST(ResolveOffload, older_names_mean_the_same) {
  const auto run = [](int stage, const std::string& keys) {
    return fmt::format(R"({{"training": {{"output_dir": "out"}}, "deepspeed": {{"zero_optimization":
      {{"stage": {}, {}}}}}}})",
                       stage, keys);
  };
  const std::string both = R"("cpu_offload": true, "cpu_offload_params": true)";
  const RunPlan plan = plan_on(run(3, both), /*on_gpu=*/true);
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_EQ(plan.layout.sharding.offload_optimizer.tier.pool, Pool::host);
  EXPECT_EQ(plan.layout.sharding.offload_param.tier.pool, Pool::host);
  EXPECT_THAT(test::reason_of(plan, "offload_param"), HasSubstr("cpu_offload_params"));
  EXPECT_THAT(plan_on(run(3, both), /*on_gpu=*/false).warnings,
              ElementsAre(AllOf(HasSubstr("cpu_offload_params = true"), HasSubstr("no copy")),
                          AllOf(HasSubstr("cpu_offload = true"), HasSubstr("no copy"))));
  EXPECT_EQ(plan_on(run(2, both), /*on_gpu=*/true).layout.sharding.offload_param.tier.pool, Pool::device);
  EXPECT_THAT(plan_on(run(2, both), /*on_gpu=*/true).warnings, ElementsAre(HasSubstr("below stage 3")));
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { plan_on(run(2, R"("cpu_offload": true, "offload_optimizer": {"device": "none"})"), true); }),
              HasSubstr("cpu_offload = true contradicts zero_optimization.offload_optimizer.device = \"none\""));
}

}  // namespace
}  // namespace nought::resolve_offload_test
