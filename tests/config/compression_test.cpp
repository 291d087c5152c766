// What travels compressed is configured by the names of DeepSpeed and torch, explained, and refused where it cannot be.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::compression_test {
namespace {

using test::error_of;
using test::plan_of;
using test::value_of;
using testing::HasSubstr;

std::string with(const std::string& deepspeed, const std::string& training = "") {
  return R"({"data": {"files": ["x"], "tokenizer": "bytes", "seq_length": 16},
             "training": {"max_steps": 30, "per_device_train_batch_size": 4, "output_dir": "out")" +
         std::string(training.find("\"bf16\"") == std::string::npos ? R"(, "bf16": true)" : "") + training +
         "}, \"deepspeed\": {" + deepspeed + "}}";
}

const std::string kAdam = R"("optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 20}})";
const std::string kZeroOne = R"("optimizer": {"type": "ZeroOneAdam", "params": {"var_freeze_step": 20}})";
const std::string kPower = R"(, "ddp_comm_hook": {"comm_hook": "power_sgd", "matrix_approximation_rank": 4})";

TEST(Compression, optimizers_have_deepspeeds_parameters_and_defaults) {
  const RunPlan adam = plan_of(with(kAdam), 2);
  EXPECT_EQ(std::get<OneBitAdamOptions>(adam.layout.sharding.optimizer.method).freeze_step, 20);
  EXPECT_EQ(value_of(adam, "freeze_step"), "20");
  EXPECT_EQ(value_of(adam, "reduction"), "momenta in one bit from update 21 on");
  const auto zero_one =
      std::get<ZeroOneAdamOptions>(plan_of(with(R"("optimizer": {"type": "ZeroOneAdam", "params": {"eps": 1e-6}})"))
                                       .layout.sharding.optimizer.method);
  EXPECT_EQ(zero_one.var_freeze_step, 100000);
  EXPECT_EQ(zero_one.var_update_scaler, 16);
  EXPECT_EQ(zero_one.local_step_scaler, 32678);
  EXPECT_EQ(zero_one.local_step_clipper, 16);
  EXPECT_EQ(zero_one.eps, 1e-6);
  const auto lamb =
      std::get<OneBitLambOptions>(plan_of(with(R"("optimizer": {"type": "OneBitLamb", "params": {"factor_max": 5}})"))
                                      .layout.sharding.optimizer.method);
  EXPECT_EQ(lamb.freeze_step, 100000);
  EXPECT_EQ(lamb.factor_max, 5);
  EXPECT_EQ(lamb.factor_min, 0.5);
  EXPECT_EQ(lamb.coeff_beta, 0.9);
  EXPECT_EQ(lamb.factor_threshold, 0.1);
  EXPECT_THAT(error_of(with(R"("optimizer": {"type": "AdamW", "params": {"freeze_step": 20}})")),
              HasSubstr("this optimizer has no parameter freeze_step"));
  EXPECT_THAT(error_of(with(R"("optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 0}})")),
              HasSubstr("expected at least 1, got 0"));
}

TEST(Compression, power_sgd_has_torchs_parameters_and_defaults) {
  const RunPlan plan = plan_of(with("", kPower), 2);
  ASSERT_TRUE(plan.layout.sharding.power_sgd);
  EXPECT_EQ(plan.layout.sharding.power_sgd->rank, 4);
  EXPECT_EQ(plan.layout.sharding.power_sgd->start_iter, 1000);
  EXPECT_EQ(plan.layout.sharding.power_sgd->min_compression_rate, 2);
  EXPECT_TRUE(plan.layout.sharding.power_sgd->use_error_feedback && plan.layout.sharding.power_sgd->warm_start);
  EXPECT_EQ(value_of(plan, "reduction"), "factors of rank 4 from update 1001 on");
  EXPECT_FALSE(plan_of(with("")).layout.sharding.power_sgd);
  EXPECT_THAT(error_of(with("", R"(, "ddp_comm_hook": {"comm_hook": "fp16"})")),
              HasSubstr("expected \"no\" or \"power_sgd\""));
}

TEST(Compression, what_it_cannot_stand_beside_is_refused_by_name) {
  const auto expect = [](const std::string& text, int ranks, const std::string& why) {
    EXPECT_THAT(error_of(text, ranks), HasSubstr(why)) << text;
  };
  for (const int stage : {1, 2, 3})
    for (const auto& [deepspeed, training] : {std::pair(kAdam, std::string()), std::pair(std::string(), kPower)})
      expect(with((deepspeed.empty() ? "" : deepspeed + ", ") +
                      fmt::format(R"("zero_optimization": {{"stage": {}}})", stage),
                  training),
             2, "set zero_optimization.stage to 0");
  expect(with(kAdam, R"(, "parallelism_config": {"tp_size": 2})"), 2, "leave tp_size");
  expect(with(kAdam, R"(, "parallelism_config": {"dp_replicate_size": 2})"), 2, "dp_replicate_size at 1");
  expect(with(kAdam, kPower), 2, "beside training.ddp_comm_hook");
  expect(with(kZeroOne, R"(, "check_weight_hash_across_dp_replicas_interval": 5)"), 2, "weights of its own");
  expect(with("", kPower + R"(, "spiky_loss_factor": 5)"), 2, "spiky_loss_factor");
  expect(with(R"("fp16": {"enabled": true})", kPower + R"(, "bf16": false)"), 2, "with a loss scale");
  expect(with(R"("communication_data_type": "fp32")", kPower), 2, "with communication_data_type");
}

}  // namespace
}  // namespace nought::compression_test
