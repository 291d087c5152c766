// Runs whose ranks send signs, or factors of low rank: they resume in mid-run with the same bits, their ranks agree,
// and they learn.
#include <cmath>
#include <filesystem>

#include "support/layout_runs.h"
#include "support/message_of.h"
#include "support/small_run.h"
#include <gmock/gmock.h>

#include "nought/train/trainer.h"

namespace nought::compression_test {
namespace {

namespace fs = std::filesystem;
using test::Layout;
using test::TempFolder;
using testing::HasSubstr;

struct Seen final : TrainObserver {
  void on_start(const RunSummary& summary) override { notes = summary.notes; }
  void on_step(const StepReport& report) override { losses.push_back(report.loss); }
  std::vector<double> losses;
  std::vector<std::string> notes;
};

struct Way {
  std::string name;
  Method method = AdamOptions{};
  std::optional<PowerSgdOptions> power_sgd = {};
};

/// Each changes what it sends between updates 5 and 10.
std::vector<Way> ways() {
  return {{"1-bit Adam", OneBitAdamOptions{.freeze_step = 7}},
          {"1-bit Lamb", OneBitLambOptions{.freeze_step = 7}},
          {"0/1 Adam",
           ZeroOneAdamOptions{
               .var_freeze_step = 6, .var_update_scaler = 2, .local_step_scaler = 1, .local_step_clipper = 4}},
          {"PowerSGD", AdamOptions{}, PowerSgdOptions{.rank = 2, .start_iter = 7}}};
}

RunPlan plan_for(const TempFolder& folder, const Way& way, DType dtype) {
  RunPlan plan = test::plan_on_lines(folder);
  plan.dtype = plan.gradient_dtype = plan.wire_dtype = dtype;
  plan.max_steps = 12, plan.save_steps = 5;
  plan.schedule = {.type = ScheduleType::cosine, .peak_lr = 3e-3, .warmup_steps = 2, .total_steps = 12};
  plan.optimizer.method = way.method;
  plan.power_sgd = way.power_sgd;
  return plan;
}

Seen run(RunPlan plan, StartMode mode, int ranks) {
  Seen seen;
  plan.world_size = ranks, plan.train_batch = plan.micro_batch * ranks;
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    Seen observer;
    Trainer(plan, mode, world, context, {&observer}).run();
    if (world.rank() == 0) seen = observer;
  });
  return seen;
}

TEST(CompressedRuns, resume_with_the_same_bits_before_and_after_they_compress) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Way& way : ways()) {
      SCOPED_TRACE(fmt::format("{} in {}", way.name, name_of(dtype)));
      const TempFolder folder;
      const RunPlan plan = plan_for(folder, way, dtype);
      const std::vector<double> whole = run(plan, StartMode::fresh, 3).losses;
      ASSERT_EQ(whole.size(), 12u);
      for (const int from : {10, 5}) {
        for (const fs::path& each : list_checkpoints(plan.output_dir))
          if (*checkpoint_step(each) > from) fs::remove_all(each);
        const std::vector<double> rest = run(plan, StartMode::resume, 3).losses;
        EXPECT_EQ(rest, std::vector<double>(whole.begin() + from, whole.end())) << "from step " << from;
      }
    }
}

TEST(CompressedRuns, on_other_ranks_drop_their_errors_and_say_so_or_are_refused) {
  for (const Way& way : ways()) {
    const TempFolder folder;
    const RunPlan plan = plan_for(folder, way, DType::f32);
    run(plan, StartMode::fresh, 2);
    fs::remove_all(fs::path(plan.output_dir) / "checkpoint-12");
    RunPlan wider = plan;
    wider.micro_batch = 1;
    if (way.name == "1-bit Lamb" || way.name == "0/1 Adam") {
      EXPECT_THAT(test::message_of<ConfigError>([&] { run(wider, StartMode::resume, 4); }),
                  HasSubstr("this optimizer cannot go on without"));
      continue;
    }
    const Seen seen = run(wider, StartMode::resume, 4);
    EXPECT_EQ(seen.losses.size(), 2u);
    EXPECT_THAT(seen.notes, testing::Contains(HasSubstr("_error")));
    EXPECT_THAT(seen.notes, testing::Contains(HasSubstr("they are dropped")));
  }
}

/// The weights of every rank after so many steps.
std::vector<std::vector<float>> weights_of(const Layout& layout) {
  std::vector<std::vector<float>> all(static_cast<size_t>(layout.ranks));
  test::with_model(layout, [&](ShardedModel& model, Engine& engine) {
    for (int step = 0; step < layout.steps; ++step) test::take_step(layout, model, engine, step);
    std::vector<float> mine;
    for (size_t unit = 0; unit < model.model().units().size(); ++unit)
      model.with_parts(unit, [&](const Parameter&, const Tensor& part) {
        const auto values = part.to_vector<float>();
        mine.insert(mine.end(), values.begin(), values.end());
      });
    all[static_cast<size_t>(model.mesh().world().rank())] = mine;
  });
  return all;
}

TEST(CompressedRuns, ranks_hold_the_same_bits_and_those_of_zero_one_adam_when_they_meet) {
  for (const Way& way : ways())
    for (const int ranks : {2, 4})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Layout layout{.ranks = ranks, .dtype = dtype, .steps = 12, .method = way.method, .power_sgd = way.power_sgd};
        auto weights = weights_of(layout);
        for (const auto& each : weights) EXPECT_EQ(each, weights.front()) << way.name << " on " << ranks << " ranks";
        if (way.name != "0/1 Adam") continue;
        layout.steps = 11;  // the ranks meet at every fourth update by now
        weights = weights_of(layout);
        EXPECT_NE(weights[0], weights[1]);
      }
}

TEST(CompressedRuns, power_sgd_of_full_rank_is_plain_but_for_rounding) {
  for (const int ranks : {2, 3, 4}) {
    Layout layout{.ranks = ranks, .steps = 3, .rows = 12};
    const auto plain = weights_of(layout).front();
    layout.power_sgd = PowerSgdOptions{.rank = 1000, .start_iter = 0, .min_compression_rate = 0};
    const auto full = weights_of(layout).front();
    ASSERT_EQ(full.size(), plain.size());
    double worst = 0;
    for (size_t i = 0; i < full.size(); ++i) worst = std::max(worst, static_cast<double>(std::abs(full[i] - plain[i])));
    EXPECT_LT(worst, 2e-4) << ranks << " ranks";
    layout.power_sgd->rank = 1;
    const auto low = weights_of(layout).front();
    double apart = 0;
    for (size_t i = 0; i < low.size(); ++i) apart = std::max(apart, static_cast<double>(std::abs(low[i] - plain[i])));
    EXPECT_GT(apart, 1e-3) << "a rank of 1 loses something";
  }
}

TEST(CompressedRuns, learn_three_quarters_of_what_plain_ones_do_in_80_steps) {
  const auto last_loss = [](const Layout& layout) {
    const auto losses = test::train(layout).losses;
    double sum = 0;
    for (size_t i = losses.size() - 10; i < losses.size(); ++i) sum += losses[i] / 10;
    return sum;
  };
  const Layout plain{.ranks = 2, .steps = 80};
  const double expected = last_loss(plain);
  std::vector<Way> all = ways();
  std::get<OneBitAdamOptions>(all[0].method).freeze_step = 30;
  std::get<ZeroOneAdamOptions>(all[2].method) = {
      .var_freeze_step = 60, .local_step_scaler = 10, .local_step_clipper = 2};
  all[3].power_sgd = PowerSgdOptions{.rank = 4, .start_iter = 10};
  for (const Way& way : {all[0], all[2], all[3]}) {
    Layout layout = plain;
    layout.method = way.method, layout.power_sgd = way.power_sgd;
    const double start = std::log(static_cast<double>(test::kVocabulary)), loss = last_loss(layout);
    EXPECT_GT(start - loss, 0.75 * (start - expected)) << way.name << ": " << loss << ", plain " << expected;
  }
}

}  // namespace
}  // namespace nought::compression_test
