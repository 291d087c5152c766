// Runs whose ranks send one bit per element, or factors of low rank: they resume in mid-run with the same bits, their
// ranks agree, and they learn.
#include <cmath>
#include <filesystem>

#include "support/message_of.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>

namespace nought::compression_test {
namespace {

namespace fs = std::filesystem;
using test::run_plan;
using test::TempFolder;
using test::TrainingCase;
using test::TrainingRank;
using testing::Contains;
using testing::HasSubstr;

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
  RunPlan plan = test::plan_on_lines(folder, 12);
  plan.layout.sharding.wire_dtype = plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = dtype;
  plan.save_steps = 5;
  plan.schedule = {.type = ScheduleType::cosine, .peak_lr = 3e-3, .warmup_steps = 2, .total_steps = 12};
  plan.layout.sharding.optimizer.method = way.method;
  plan.layout.sharding.power_sgd = way.power_sgd;
  return plan;
}

TEST(CompressedRuns, resume_with_the_same_bits_before_and_after_they_compress) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    int turn = dtype == DType::bf16;
    for (const Way& way : ways()) {
      if (!test::samples(turn++, 2)) continue;  // each way has one of the dtypes
      SCOPED_TRACE(fmt::format("{} in {}", way.name, name_of(dtype)));
      const TempFolder folder;
      const RunPlan plan = plan_for(folder, way, dtype);
      const test::ToldRun whole = run_plan(plan, {.ranks = 3});
      ASSERT_EQ(whole.steps.size(), 12u);
      for (const int from : {10, 5}) test::expect_resumes(plan, whole, from, 3);
    }
  }
}

TEST(CompressedRuns, on_other_ranks_drop_their_errors_and_say_so_or_are_refused) {
  for (const Way& way : ways()) {
    const TempFolder folder;
    const RunPlan plan = plan_for(folder, way, DType::f32);
    run_plan(plan, {.ranks = 2});
    fs::remove_all(fs::path(plan.output_dir) / "checkpoint-12");
    RunPlan wider = plan;
    wider.layout.micro_batch = 1;
    const test::RunStart four{.ranks = 4, .mode = StartMode::resume};
    if (way.name == "1-bit Lamb" || way.name == "0/1 Adam") {
      EXPECT_THAT(test::message_of<ConfigError>([&] { run_plan(wider, four); }),
                  HasSubstr("this optimizer cannot go on without"));
      continue;
    }
    const test::ToldRun told = run_plan(wider, four);
    EXPECT_EQ(told.steps.size(), 2u);
    EXPECT_THAT(told.summary.notes, Contains(HasSubstr("_error")));
    EXPECT_THAT(told.summary.notes, Contains(HasSubstr("they are dropped")));
  }
}

TrainingCase case_of(const Way& way, int ranks, int64_t steps) {
  TrainingCase each = test::learning(test::small_model("grouped_heads", 3), test::sharded(ranks, 0));
  each.settings.optimizer.method = way.method, each.settings.power_sgd = way.power_sgd;
  each.steps.end = steps, each.rows.of_step = 12, each.rows.length = 16;
  return each;
}

/// The weights that every rank holds after the steps.
std::vector<test::WholeTensors> weights_of(const TrainingCase& of) {
  std::vector<test::WholeTensors> all(static_cast<size_t>(of.mesh.ranks()));
  of.on_ranks([&](TrainingRank& rank) {
    for (int64_t step = 0; step < of.steps.end; ++step) rank.step(step);
    for (size_t unit = 0; unit < rank.decoder.units().size(); ++unit)
      rank.model.with_parts(unit, [&](const Parameter& parameter, const Tensor& part) {
        all[static_cast<size_t>(rank.world.rank())][parameter.name] = part.to_vector<float>();
      });
  });
  return all;
}

TEST(CompressedRuns, ranks_hold_the_same_bits_and_those_of_zero_one_adam_when_they_meet) {
  for (const Way& way : ways())
    for (const int ranks : {2, 4})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        TrainingCase each = case_of(way, ranks, 12).in(dtype);
        auto weights = weights_of(each);
        for (const auto& of_rank : weights)
          EXPECT_EQ(of_rank, weights.front()) << way.name << " on " << ranks << " ranks";
        if (way.name != "0/1 Adam") continue;
        each.steps.end = 11;  // the ranks synchronize at every fourth update by now
        weights = weights_of(each);
        EXPECT_NE(weights[0], weights[1]);
      }
}

TEST(CompressedRuns, power_sgd_of_full_rank_is_plain_but_for_rounding) {
  for (const int ranks : {2, 3, 4}) {
    const auto weights_with = [&](const std::optional<PowerSgdOptions>& power_sgd) {
      return weights_of(case_of({"", AdamOptions{}, power_sgd}, ranks, 3)).front();
    };
    const auto plain = weights_with({});
    PowerSgdOptions full{.rank = 1000, .start_iter = 0, .min_compression_rate = 0}, low = full;
    low.rank = 1;
    EXPECT_LT(test::largest_difference(weights_with(full), plain), 2e-4) << ranks << " ranks";
    EXPECT_GT(test::largest_difference(weights_with(low), plain), 1e-3) << "a rank of 1 loses something";
  }
}

TEST(CompressedRuns, learn_three_quarters_of_what_plain_ones_do_in_80_steps) {
  const auto learned = [](const Way& way) {
    TrainingCase each = case_of(way, 2, 80);
    each.rows.of_step = 4;
    return std::log(static_cast<double>(test::kSmallVocabulary)) - each.run().last_loss(10);
  };
  std::vector<Way> all = ways();
  std::get<OneBitAdamOptions>(all[0].method).freeze_step = 30;
  std::get<ZeroOneAdamOptions>(all[2].method) = {
      .var_freeze_step = 60, .local_step_scaler = 10, .local_step_clipper = 2};
  all[3].power_sgd = PowerSgdOptions{.rank = 4, .start_iter = 10};
  const double expected = learned({"plain"});
  for (const Way& way : {all[0], all[2], all[3]}) EXPECT_GT(learned(way), 0.75 * expected) << way.name;
}

}  // namespace
}  // namespace nought::compression_test
