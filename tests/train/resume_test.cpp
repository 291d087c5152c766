// Where a run continues, and which checkpoints are none of its own.
#include "nought/checkpoint/resume.h"

#include "support/saved_model.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/trainer.h"

namespace nought::resume_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void write_checkpoint(const fs::path& folder, int64_t step) {
  test::SavedModel{.model = test::tiny_llama(1), .info = {.step = step}}.save(folder);
}

struct Runs {
  Runs() {
    for (const int64_t step : {20, 40, 60}) write_checkpoint(folder / "out", step);
    write_checkpoint(folder / "other", 30);
    plan.output_dir = (folder / "out").string();
  }
  fs::path point(const std::string& from) {
    plan.resume_from = from;
    return resume_point(plan);
  }
  TempFolder folder;
  RunPlan plan;
};

TEST(Resume, begins_at_the_last_checkpoint_at_a_step_or_at_a_path) {
  Runs runs;
  const fs::path out = runs.folder / "out", other = runs.folder / "other";
  EXPECT_EQ(runs.point(""), out / "checkpoint-60");
  EXPECT_EQ(runs.point("40"), out / "checkpoint-40");
  EXPECT_EQ(runs.point((other / "checkpoint-30").string()), other / "checkpoint-30");
  EXPECT_EQ(runs.point((other / "checkpoint-30/").string()), other / "checkpoint-30");
  EXPECT_EQ(runs.point(other.string()), other / "checkpoint-30") << "the last one of a run's folder";
}

TEST(Resume, what_is_not_there_is_told_with_what_is) {
  Runs runs;
  EXPECT_THAT(message_of<IoError>([&] { runs.point("50"); }),
              AllOf(HasSubstr("nothing to resume"), HasSubstr("checkpoints of steps 20, 40, 60, not of step 50")));
  EXPECT_THAT(message_of<IoError>([&] { runs.point("nowhere"); }),
              HasSubstr("nothing to resume: nowhere is neither a checkpoint nor a folder that holds one"));
}

TEST(Resume, later_checkpoints_and_those_of_another_run_are_not_its_own) {
  const Runs runs;
  const fs::path out = runs.folder / "out", other = runs.folder / "other/checkpoint-30";
  EXPECT_THAT(checkpoints_of_others(out / "checkpoint-60", out), IsEmpty());
  EXPECT_THAT(checkpoints_of_others(out / "checkpoint-20", out),
              ElementsAre(out / "checkpoint-40", out / "checkpoint-60"));
  EXPECT_EQ(checkpoints_of_others(other, out).size(), 3u);
  EXPECT_THAT(checkpoints_of_others(other, runs.folder / "new"), IsEmpty());
  fs::rename(out / "checkpoint-20", out / "kept");
  EXPECT_EQ(checkpoints_of_others(out / "kept", out).size(), 2u) << "a renamed one knows its step";
}

TEST(Resume, an_incomplete_checkpoint_that_it_steps_back_over_is_told) {
  Runs runs;
  const fs::path out = runs.folder / "out";
  EXPECT_EQ(describe_incomplete_after(out / "checkpoint-60"), "");
  fs::remove(out / "checkpoint-60/manifest.json");
  fs::create_directory(out / "checkpoint-80");
  const fs::path point = runs.point("");
  EXPECT_EQ(point, out / "checkpoint-40");
  EXPECT_EQ(describe_incomplete_after(point),
            "checkpoint-60, checkpoint-80 behind it have no manifest.json and are not complete: the run goes back to " +
                point.string());
  fs::remove(out / "checkpoint-20/manifest.json");
  EXPECT_THAT(describe_incomplete_after(point), HasSubstr("checkpoint-60, checkpoint-80 behind")) << "not those before";
}

}  // namespace
}  // namespace nought::resume_test
