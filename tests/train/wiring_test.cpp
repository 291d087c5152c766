// What a plan says reaches the part that does it: each choice is made once in another way than the default, and what it
// changes is measured.
#include <cmath>
#include <numeric>

#include "support/in_folder.h"
#include "support/loaded_states.h"
#include "support/message_of.h"
#include "support/token_file.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint_folders.h"

namespace nought::wiring_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

std::string some_text() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("line {} of a text that repeats itself.\n", i * 7 % 23);
  return text;
}

RunPlan plan_for(const TempFolder& folder) {
  RunPlan plan = test::plan_on_lines(folder, 8);
  plan.model_config.update({{"hidden_size", 32}, {"intermediate_size", 48}, {"num_attention_heads", 4}});
  plan.layout.micro_batch = 4;
  plan.schedule = {.type = ScheduleType::constant, .peak_lr = 3e-3};
  plan.seed = 9;
  return plan;
}

/// Four rows a micro-batch, over all ranks.
test::ToldRun run(RunPlan plan, int ranks = 1, StartMode mode = StartMode::overwrite) {
  plan.layout.micro_batch /= ranks;
  return test::run_plan(plan, {.ranks = ranks, .mode = mode});
}

void expect_goes_on(RunPlan plan, const test::ToldRun& whole, int64_t from, int ranks = 1) {
  plan.layout.micro_batch /= ranks;
  test::expect_resumes(plan, whole, from, ranks);
}

class Wiring : public test::InFolder {
 protected:
  RunPlan plan = plan_for(folder);
};

TEST_F(Wiring, a_run_with_states_and_parameters_in_files_is_the_same_run_and_resumes_without_them) {
  const TempFolder folder, drive;
  const RunPlan plain = plan_for(folder);
  RunPlan offloaded = plain;
  offloaded.layout.zero_stage = 3;
  offloaded.layout.sharding.offload_optimizer = {.tier = {Pool::file, drive.path().string()}, .sub_group = 1000};
  offloaded.layout.sharding.offload_param = {.tier = {Pool::file, drive.path().string()}};
  const test::ToldRun whole = run(plain, 2);
  EXPECT_EQ(run(offloaded, 2).losses(), whole.losses());
  offloaded.save_steps = 4;
  run(offloaded, 2);
  expect_goes_on(plain, whole, 4, 2);
}

TEST_F(Wiring, experts_take_the_plans_capacity) {
  RunPlan plan;
  plan.model_config = {{"model_type", "mixtral"}};
  EXPECT_EQ(model_config_of(plan).experts->capacity_factor, 0);
  plan.moe_capacity_factor = 1.5;
  plan.moe_drop_tokens = false;
  EXPECT_EQ(model_config_of(plan).experts->capacity_factor, 1.5);
  EXPECT_FALSE(model_config_of(plan).experts->drop_tokens);
}

/// |weights after step 1 - weights that the plan's seed gives|.
double distance_moved(const RunPlan& plan) {
  const Decoder decoder(model_config_of(plan));
  const test::WholeTensors before = test::values_of(InitialState(plan.seed), decoder);
  double squares = 0;
  for (const auto& [name, after] :
       test::values_of(Checkpoint(list_checkpoints(plan.output_dir).front(), decoder), decoder))
    for (size_t i = 0; i < after.size(); ++i) squares += std::pow(double{after[i]} - before.at(name)[i], 2);
  return std::sqrt(squares);
}

// Plain descent: a step goes as far as the rate times the norm of the clipped gradient.
TEST_F(Wiring, a_step_goes_as_far_as_the_rate_and_the_clipping_say) {
  plan.layout.sharding.optimizer = {.method = SgdOptions{}};
  plan.schedule.peak_lr = 0.05;
  plan.max_steps = 1;
  for (const auto& [clipping, accumulation, loss_scale] :
       {std::tuple(0.0, 1, false), std::tuple(1e6, 2, false), std::tuple(0.01, 1, false), std::tuple(0.01, 2, true)}) {
    plan.gradient_clipping = clipping;
    plan.layout.accumulation = accumulation;
    plan.gradient_factor = accumulation;
    if (loss_scale) plan.loss_scale = LossScaleOptions{.static_scale = 32};
    const double norm = run(plan, 2).steps.at(0).grad_norm;
    EXPECT_GT(norm, 0.1) << "the clipping is not tight enough to be seen";
    const double expected = 0.05 * (clipping == 0 ? norm : std::min(norm, clipping));
    EXPECT_NEAR(distance_moved(plan), expected, 2e-3 * expected) << "clipping " << clipping;
  }
}

TEST_F(Wiring, the_loss_of_an_untrained_model_is_the_mean_over_the_targets_that_count) {
  for (const bool masked : {false, true}) {
    RunPlan plan = plan_for(folder);
    plan.data.sources = {{{test::write_tokens(folder, "a.tokens", some_text(), masked ? 40 : 0)}}};
    plan.max_steps = 1;
    for (const bool separate : {false, true})
      for (const int ranks : {1, 2}) {
        plan.data.separate_documents = separate;
        EXPECT_NEAR(run(plan, ranks).steps.at(0).loss, std::log(256.0), 0.2)
            << (masked ? "masked" : "whole") << (separate ? ", separate" : "") << ", " << ranks << " ranks";
      }
  }
}

/// Some steps overflow, then the scale fits; a checkpoint lies between them.
RunPlan overflowing(const TempFolder& folder) {
  RunPlan plan = plan_for(folder);
  plan.layout.sharding.wire_dtype = plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = DType::f16;
  plan.loss_scale = LossScaleOptions{.initial_power = 24, .scale_window = 3, .hysteresis = 1};
  plan.schedule = {.type = ScheduleType::linear, .peak_lr = 3e-3, .warmup_steps = 3, .total_steps = 20};
  plan.max_steps = 18;
  plan.save_steps = 9;
  plan.layout.zero_stage = 2;
  return plan;
}

TEST_F(Wiring, skipped_steps_do_not_move_the_schedule) {
  const RunPlan plan = overflowing(folder);
  const test::ToldRun reports = run(plan, 2);
  int64_t updates = 0, skipped = 0;
  for (const StepReport& step : reports.steps) {
    EXPECT_EQ(step.lr, learning_rate(plan.schedule, updates)) << "step " << step.step;
    step.skipped ? ++skipped : ++updates;
    EXPECT_EQ(step.step, updates + skipped);
    EXPECT_EQ(step.skipped_so_far, skipped);
  }
  EXPECT_GE(skipped, 3) << "too few overflow, so the test says little";
  EXPECT_GE(updates, 6) << "too many overflow, so the test says little";
}

TEST_F(Wiring, a_run_that_skipped_steps_resumes_bit_for_bit) {
  const test::ToldRun whole = run(overflowing(folder), 2);
  ASSERT_EQ(whole.steps.size(), 18u);
  EXPECT_TRUE(whole.steps[0].skipped && !whole.steps[8].skipped);
  fs::remove_all(folder / "out/checkpoint-18");
  const test::ToldRun rest = run(overflowing(folder), 2, StartMode::resume);
  ASSERT_EQ(rest.steps.size(), 9u);
  for (size_t i = 0; i < rest.steps.size(); ++i) {
    const StepReport &now = rest.steps[i], &then = whole.steps[9 + i];
    EXPECT_EQ(now.step, then.step);
    EXPECT_EQ(now.loss, then.loss);
    EXPECT_EQ(now.lr, then.lr);
    EXPECT_EQ(now.loss_scale, then.loss_scale);
    EXPECT_EQ(now.next_loss_scale, then.next_loss_scale);
    EXPECT_EQ(now.skipped_so_far, then.skipped_so_far);
  }
}

/// What a run keeps beside weights and moments: scales of 8-bit products, the draws of random rounding.
TEST_F(Wiring, eight_bit_products_and_random_rounding_resume_bit_for_bit) {
  for (const bool fp8 : {false, true}) {
    const TempFolder folder;
    RunPlan plan = plan_for(folder);
    plan.layout.sharding.wire_dtype = plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = DType::bf16;
    plan.save_steps = 4;
    if (fp8) {
      plan.layout.fp8 = {.scaling = Fp8Scaling::delayed, .history = 3};
    } else {
      plan.layout.sharding.optimizer.master_weights = false;
      plan.layout.sharding.optimizer.state_dtype = DType::bf16;
    }
    const test::ToldRun whole = run(plan);
    expect_goes_on(plan, whole, 4);
    plan.seed = 10;
    EXPECT_NE(run(plan).losses(), whole.losses());
  }
}

TEST_F(Wiring, a_run_from_a_folder_begins_with_its_weights_and_the_seed_orders_its_samples) {
  plan.max_steps = 40;
  const std::vector<double> first = run(plan).losses();
  ASSERT_LT(first.back(), first.front() - 1) << "the model does not learn, so the test says little";
  fs::rename(folder / "out", folder / "model");
  plan.model_config = nullptr;
  plan.model_dir = (folder / "model").string();
  plan.max_steps = 3;
  const std::vector<double> again = run(plan).losses();
  EXPECT_LT(again.front(), first.back() + 0.5);
  EXPECT_EQ(run(plan).losses(), again);
  plan.seed = 10;
  EXPECT_NE(run(plan).losses().front(), again.front());
}

TEST_F(Wiring, a_run_validates_with_the_validation_data) {
  const std::string other(333, 'x');
  plan.data.validation_files = {folder.write("other.txt", other).string()};
  const test::ToldRun reports = run(plan, 2);
  EXPECT_EQ(reports.validations.back().second.targets, static_cast<int64_t>(other.size()));
  EXPECT_GT(reports.validations.back().second.loss, reports.steps.back().loss) << "no x was ever seen";
}

TEST_F(Wiring, what_is_not_finite_stops_a_run_or_is_skipped_as_the_plan_says) {
  plan.layout.sharding.optimizer = {.method = SgdOptions{}};
  plan.gradient_clipping = 0;
  plan.schedule.peak_lr = 1e30;
  plan.max_steps = 4;
  EXPECT_THAT(message_of<Error>([&] { run(plan); }), HasSubstr("first found at"));
  plan.on_nonfinite = OnNonfinite::skip;
  const test::ToldRun reports = run(plan);
  ASSERT_EQ(reports.steps.size(), 4u);
  EXPECT_FALSE(reports.steps[0].skipped);
  EXPECT_TRUE(reports.steps[3].skipped);
  EXPECT_THAT(reports.steps[3].nonfinite, HasSubstr("first found at"));
}

}  // namespace
}  // namespace nought::wiring_test
