#include "nought/checkpoint/checkpoint_folders.h"

#include "support/in_folder.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/checkpoint/checkpoint_manifest.h"

namespace nought::checkpoint_folders_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::message_of;
using test::names_in;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Steps = std::vector<int64_t>;

/// A checkpoint without blocks, under its name or another one.
void write_checkpoint(const TempFolder& folder, int64_t step, std::string name = {}) {
  if (name.empty()) name = checkpoint_path("", step).string();
  folder.write(name + "/rank-00000.safetensors", "x");
  write_manifest({.step = step}, Json::array(), folder / name);
}

Steps steps_in(const TempFolder& folder) {
  Steps steps;
  for (const fs::path& path : list_checkpoints(folder.path())) steps.push_back(*checkpoint_step(path));
  return steps;
}

class CheckpointFolders : public test::InFolder {};

TEST_F(CheckpointFolders, a_disk_that_does_not_answer_is_not_taken_for_an_older_checkpoint) {
  write_checkpoint(folder, 1);
  fs::create_directory(folder / "checkpoint-2");
  fs::create_symlink("manifest.json", folder / "checkpoint-2/manifest.json");  // which leads nowhere
  EXPECT_THAT(message_of<IoError>([&] { last_checkpoint(folder.path()); }),
              testing::AllOf(HasSubstr("checkpoint-2/manifest.json"), HasSubstr("Too many levels of symbolic links")));
}

TEST_F(CheckpointFolders, have_the_name_of_their_step_alone) {
  EXPECT_EQ(checkpoint_step("out/checkpoint-30"), 30);
  EXPECT_EQ(checkpoint_step("checkpoint-0"), 0);
  for (const char* name : {"checkpoint-030", "checkpoint--3", "checkpoint-", "checkpoint-3.partial", "checkpoint-3.old",
                           "checkpoint-99999999999999999999", "kept"})
    EXPECT_EQ(checkpoint_step(name), std::nullopt) << name;
}

TEST_F(CheckpointFolders, the_best_one_stays_among_those_that_are_kept) {
  const auto kept = [&](int64_t keep, int64_t best) {
    for (const int64_t step : {1, 2, 3, 4}) write_checkpoint(folder, step);
    remove_old_checkpoints(folder.path(), keep, checkpoint_path(folder.path(), best));
    return steps_in(folder);
  };
  EXPECT_EQ(kept(2, 4), (Steps{3, 4}));
  EXPECT_EQ(kept(2, 1), (Steps{1, 4}));
  EXPECT_EQ(kept(3, 2), (Steps{2, 3, 4}));
  EXPECT_EQ(kept(1, 2), (Steps{2, 4})) << "one to go on from, one to keep";
  EXPECT_EQ(kept(1, 4), (Steps{4}));
  EXPECT_EQ(kept(0, 1), (Steps{1, 2, 3, 4}));
}

TEST_F(CheckpointFolders, one_with_the_name_of_another_step_pushes_none_out) {
  for (const int64_t step : {20, 30, 40}) write_checkpoint(folder, step);
  write_checkpoint(folder, 10, "checkpoint-99");  // renamed
  write_checkpoint(folder, 50, "checkpoint-5");
  folder.write("checkpoint-60/manifest.json", "{");
  remove_old_checkpoints(folder.path(), 2);
  EXPECT_EQ(steps_in(folder), (Steps{5, 30, 40, 60, 99})) << "the last two of the run, and what is not understood";
}

TEST_F(CheckpointFolders, without_a_manifest_are_told_and_are_not_the_last) {
  folder.write("checkpoint-40/rank-00000.safetensors", "x");
  EXPECT_THAT(
      message_of<IoError>([&] { last_checkpoint(folder.path()); }),
      HasSubstr("holds no complete checkpoint (" + (folder / "checkpoint-40").string() + " has no manifest.json)"));
  write_checkpoint(folder, 20);
  EXPECT_EQ(last_checkpoint(folder.path()), folder / "checkpoint-20");
  EXPECT_THAT(incomplete_checkpoints(folder.path()), ElementsAre(folder / "checkpoint-40"));
}

TEST_F(CheckpointFolders, what_killed_runs_left_goes_and_nothing_else) {
  for (const int64_t step : {20, 30}) write_checkpoint(folder, step);
  write_checkpoint(folder, 30, "checkpoint-30.partial");  // replaced
  write_checkpoint(folder, 20, "checkpoint-20.old");      // replaced without an exchange
  folder.write("checkpoint-40.partial/rank-00000.safetensors", "unfinished");
  folder.write("checkpoint-10/rank-00000.safetensors", "half rotated");
  folder.write("checkpoint-50/rank-00000.safetensors", "told when a run goes back");
  for (const char* name : {"metrics.jsonl.partial", "model-00001-of-00002.safetensors.partial", "config.json.partial"})
    folder.write(name, "cut");
  const std::vector<std::string> others{"notes.txt.partial", "download.partial/x", "checkpoint-x.partial/x",
                                        "archive.old", "checkpoint-7.partial.txt"};
  for (const std::string& name : others) folder.write(name, "of somebody");
  fs::create_directory_symlink(folder / "download.partial", folder / "checkpoint-8.partial");
  EXPECT_THAT(remove_debris(folder.path()),
              ElementsAre(fmt::format("removed what killed runs left in {}: checkpoint-10, checkpoint-20.old, "
                                      "checkpoint-30.partial and 4 more",
                                      folder.path().string())));
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("archive.old", "checkpoint-20", "checkpoint-30", "checkpoint-50", "checkpoint-7.partial.txt",
                          "checkpoint-8.partial", "checkpoint-x.partial", "download.partial", "notes.txt.partial"));
  EXPECT_THAT(remove_debris(folder.path()), IsEmpty());
}

TEST_F(CheckpointFolders, one_that_stepped_aside_for_a_save_that_was_cut_gets_its_name_back) {
  write_checkpoint(folder, 30, "checkpoint-30.old");
  write_checkpoint(folder, 30, "checkpoint-30.partial");
  const std::vector<std::string> lines = remove_debris(folder.path());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("gave checkpoint-30 in"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-30"));
  EXPECT_EQ(read_checkpoint_info(folder / "checkpoint-30").step, 30);
}

TEST_F(CheckpointFolders, half_rotated_ones_stay_while_nothing_newer_is_complete) {
  folder.write("checkpoint-10/rank-00000.safetensors", "all that there is");
  EXPECT_THAT(remove_debris(folder.path()), IsEmpty());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-10"));
}

}  // namespace
}  // namespace nought::checkpoint_folders_test
