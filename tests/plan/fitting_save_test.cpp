// Checkpoints are written beside the training where copies of states have room, and these are in the plan to the byte.
#include "nought/plan/fitting_save.h"

#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/plan/predict.h"
#include "nought/train/validate_run.h"

namespace nought::fitting_save_test {
namespace {

using testing::HasSubstr;

class FittingSave : public test::InFolder {
 protected:
  FittingSave() {
    plan.layout.wire = Wire::threads;
    plan.save_steps = 2;
    plan.resolved.push_back({"async_save", "false", "not known"});
    plan.async_save_fits_memory = true;
  }
  RankMemory predicted(bool beside) const {
    Layout layout = layout_of(plan);
    layout.async_save = beside;
    return predict(model_config_of(plan), layout).memory;
  }
  static int64_t copies_in(const RankMemory& memory) { return memory.peak[static_cast<size_t>(Category::checkpoint)]; }

  RunPlan plan = test::plan_on_lines(folder, 3);
};

NOUGHT_SIZE(medium);
TEST_F(FittingSave, what_a_run_holds_of_copies_is_in_the_plan) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 3})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (ranks == 1 && stage != (dtype == DType::f32 ? 0 : 3)) continue;
        plan.layout.ranks = ranks, plan.layout.zero_stage = stage;
        plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = dtype;
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, {}", ranks, stage, name_of(dtype)));
        const RankMemory expected = predicted(true), without = predicted(false);
        EXPECT_EQ(expected.peak_total, without.peak_total + copies_in(expected));
        plan.layout.async_save = true;
        const test::ToldRun told = test::run_plan(plan, {.ranks = ranks, .mode = StartMode::overwrite});
        plan.layout.async_save = false;
        for (size_t c = 0; c < kNumCategories; ++c)
          EXPECT_EQ(told.memory.at(0).peak[c], expected.peak[c]) << name_of(static_cast<Category>(c));
        EXPECT_EQ(told.memory.at(0).peak_total, expected.peak_total);
        if (ranks == 1) {
          EXPECT_EQ(copies_in(expected), 12 * told.summary.parameters);
        }
      }
}

TEST_F(FittingSave, takes_room_in_memory) {
  plan.device_memory = predicted(true).peak_total;
  const RunPlan fits = with_fitting_save(plan);
  EXPECT_TRUE(fits.layout.async_save);
  EXPECT_EQ(fits.resolved.back().value, "true");
  EXPECT_THAT(fits.resolved.back().reason, HasSubstr("fit "));
  --plan.device_memory;
  const RunPlan waits = with_fitting_save(plan);
  EXPECT_FALSE(waits.layout.async_save);
  EXPECT_EQ(waits.resolved.back().value, "false");
  EXPECT_THAT(waits.resolved.back().reason, HasSubstr("more than fits"));
  plan.async_save_fits_memory = false, plan.layout.async_save = true;  // the user says so
  EXPECT_TRUE(with_fitting_save(plan).layout.async_save);
}

TEST_F(FittingSave, is_decided_by_the_first_rank_for_all) {
  plan.device_memory = predicted(true).peak_total;
  for (const bool fits : {true, false})
    run_ranks(2, [&](Communicator& ranks, const Context& context) {
      RunPlan mine = plan;
      if (!fits && ranks.rank() == 0) --mine.device_memory;
      EXPECT_EQ(with_common_fitting_save(mine, ranks, context).layout.async_save, fits);
    });
}

}  // namespace
}  // namespace nought::fitting_save_test
