#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_optimizer_test {
namespace {

using test::error_of;
using test::plan_of;
using testing::HasSubstr;

TEST(Resolve, deepspeed_optimizers_become_methods_with_their_parameters) {
  const auto plan_with = [](const std::string& type, const std::string& params) {
    return plan_of(fmt::format(R"({{"deepspeed": {{"optimizer": {{"type": "{}", "params": {}}}}}}})", type, params));
  };
  const auto sgd =
      std::get<SgdOptions>(plan_with("SGD", R"({"momentum": 0.9, "nesterov": true})").layout.sharding.optimizer.method);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  const auto lamb = std::get<LambOptions>(
      plan_with("Lamb", R"({"max_coeff": 5, "min_coeff": 0.1})").layout.sharding.optimizer.method);
  EXPECT_EQ(lamb.max_coeff, 5);
  EXPECT_EQ(lamb.min_coeff, 0.1);
  EXPECT_EQ(std::get<LionOptions>(plan_with("Lion", "{}").layout.sharding.optimizer.method).beta2, 0.99);
  EXPECT_EQ(std::get<AdagradOptions>(plan_with("Adagrad", "{}").layout.sharding.optimizer.method).eps, 1e-10);
  const auto muon = std::get<MuonOptions>(
      plan_with("Muon", R"({"lr": 0.001, "muon_lr": 0.02, "momentum": 0.9})").layout.sharding.optimizer.method);
  EXPECT_DOUBLE_EQ(muon.lr_scale, 20);
  EXPECT_EQ(muon.others_lr_scale, 1);
  EXPECT_EQ(muon.momentum, 0.9);
}

TEST(Resolve, training_names_optimizers_their_arguments_and_groups) {
  const RunPlan plan = plan_of(R"({"training": {"optim": "sgd", "optim_args": "momentum=0.9, nesterov=True",
    "weight_decay_all": true, "parameter_groups": [{"pattern": "embed", "lr_scale": 0.1, "weight_decay": 0}]}})");
  EXPECT_EQ(std::get<SgdOptions>(plan.layout.sharding.optimizer.method).momentum, 0.9);
  EXPECT_TRUE(std::get<SgdOptions>(plan.layout.sharding.optimizer.method).nesterov);
  EXPECT_TRUE(plan.layout.sharding.optimizer.decay_all);
  ASSERT_EQ(plan.layout.sharding.optimizer.groups.size(), 1u);
  EXPECT_EQ(plan.layout.sharding.optimizer.groups[0].weight_decay, 0);
  const auto rmsprop = std::get<RmsPropOptions>(
      plan_of(R"({"training": {"optim": "rmsprop", "optim_args": "alpha=0.9"}})").layout.sharding.optimizer.method);
  EXPECT_EQ(rmsprop.alpha, 0.9);
  EXPECT_EQ(rmsprop.eps, 1e-8);
  EXPECT_EQ(plan_of(R"({"training": {"optim": "adamw_8bit"}})").layout.sharding.optimizer.state_block, 256);
  EXPECT_EQ(plan_of(R"({"training": {"optim": "adamw_8bit", "optim_args": "block_size=2048"}})")
                .layout.sharding.optimizer.state_block,
            2048);
}

TEST(Resolve, bad_optimizer_values_are_one_line_errors) {
  const auto training = [](const std::string& text) { return error_of("{\"training\": {" + text + "}}"); };
  EXPECT_THAT(training(R"("optim_args": "momentum=0.9")"), HasSubstr("this optimizer has no parameter momentum"));
  EXPECT_THAT(training(R"("optim": "rmsprop", "optim_args": "alpha=1")"), HasSubstr("expected alpha in [0, 1), got 1"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "momentum")"), HasSubstr("expected key=value pairs"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "momentun=1")"), HasSubstr("did you mean"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "nesterov=true")"), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(training(R"("parameter_groups": [{"pattern": "("}])"), HasSubstr("is not a regular expression"));
  EXPECT_THAT(training(R"("parameter_groups": [{"lr_scale": 2}])"), HasSubstr("expected a pattern"));
  EXPECT_THAT(training(R"("freeze": ["("])"), HasSubstr("is not a regular expression"));
  EXPECT_THAT(training(R"("trainable": [""])"), HasSubstr("expected a pattern"));
  EXPECT_THAT(training(R"("lr_scheduler_kwargs": {"power": 2})"), HasSubstr("linear has no such parameter"));
  EXPECT_THAT(error_of(R"({"training": {"optim": "sgd"}, "deepspeed": {"optimizer": {"type": "Lion"}}})"),
              HasSubstr("contradicts"));
}

}  // namespace
}  // namespace nought::resolve_optimizer_test
