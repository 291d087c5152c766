// Between which steps runs became different, told by metrics and by the checksums of checkpoints.
#include "nought/report/divergence.h"

#include <cmath>

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/compare_checkpoints.h"

namespace nought::divergence_test {
namespace {

using nlohmann::json;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::HasSubstr;

/// A checkpoint whose only state has this checksum; cut: where its two blocks meet.
void write_checkpoint(const TempFolder& folder, const std::string& run, int64_t step, const std::string& hash,
                      int cut = 4) {
  const std::filesystem::path path = folder / (run + "/checkpoint-" + std::to_string(step));
  std::filesystem::create_directories(path);
  const auto block = [&](int begin, int end, const std::string& xxh3) {
    return json{{"state", "master"}, {"parameter", "w"}, {"begin", begin}, {"end", end},
                {"file", run},       {"tensor", run},    {"xxh3", xxh3}};
  };
  write_manifest({.step = step}, json::array({block(0, cut, "same"), block(cut, 8, hash)}), path);
}

class DivergenceOf : public testing::Test {
 public:
  TempFolder folder;
  RunDivergence find(const std::string& first, const std::string& other) {
    return find_divergence(read_run_folder(write_run_files(folder, "a", first, test::run_record({}))),
                           read_run_folder(write_run_files(folder, "b", other, test::run_record({}))));
  }
};

TEST_F(DivergenceOf, equal_runs_is_none) {
  write_checkpoint(folder, "a", 4, "x"), write_checkpoint(folder, "b", 4, "x");
  const RunDivergence found = find(step_lines(6), step_lines(8));
  EXPECT_FALSE(found.different);
  EXPECT_EQ(found.equal, 4);
  EXPECT_EQ(found.steps, 6);
  EXPECT_EQ(found.checkpoints, 1);
}

TEST_F(DivergenceOf, losses_is_at_the_first_bit_that_differs) {
  const std::string last = step_line(4, 0.5).dump() + "\n";
  json other = step_line(4, 0.5);
  other["grad_norm"] = std::nextafter(1.0, 2.0);
  const RunDivergence found = find(step_lines(3) + last, step_lines(3) + other.dump() + "\n");
  EXPECT_EQ(found.different, 4);
  EXPECT_EQ(found.equal, 0);
  EXPECT_THAT(found.how, HasSubstr("grad_norm 1 and 1.0000000000000002"));
}

TEST_F(DivergenceOf, checkpoints_lies_between_the_last_equal_and_the_first_other) {
  for (const char* run : {"a", "b"}) write_checkpoint(folder, run, 2, "x"), write_checkpoint(folder, run, 6, run);
  write_checkpoint(folder, "a", 4, "x"), write_checkpoint(folder, "b", 4, "x");
  const RunDivergence found = find(step_lines(8), step_lines(8));
  EXPECT_EQ(found.equal, 4);
  EXPECT_EQ(found.different, 6);
  EXPECT_EQ(found.how, "master/w");
}

TEST_F(DivergenceOf, checkpoints_of_other_layouts_is_not_known) {
  write_checkpoint(folder, "a", 4, "x", 4), write_checkpoint(folder, "b", 4, "x", 5);
  const RunDivergence found = find(step_lines(4), step_lines(4));
  EXPECT_EQ(found.equal, 0);
  EXPECT_EQ(found.incomparable, 1);
  EXPECT_FALSE(found.different);
  EXPECT_FALSE(compare_checkpoints(folder / "a/checkpoint-4", folder / "b/checkpoint-4").equal);
}

}  // namespace
}  // namespace nought::divergence_test
