#include "nought/checkpoint/export_record.h"

#include <thread>

#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::export_record_test {
namespace {

NOUGHT_FILE_SIZE(small);

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;
using testing::MatchesRegex;

TEST(ExportRecord, is_read_as_it_was_written) {
  const TempFolder folder;
  EXPECT_FALSE(read_export_record(folder.path()).has_value());
  write_export_record({.step = 100, .best = BestModel{.step = 40, .value = 1.5}, .written_by = "1 (abc)"},
                      folder.path());
  const auto record = read_export_record(folder.path());
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->step, 100);
  EXPECT_EQ(record->best, (BestModel{.step = 40, .value = 1.5}));
  EXPECT_EQ(record->written_by, "1 (abc)");
  EXPECT_THAT(record->written_at, MatchesRegex("20..-..-..T..:..:..\\....Z"));
}

TEST(ExportRecord, a_file_of_another_program_is_none_and_a_newer_one_is_refused) {
  const TempFolder folder;
  for (const char* foreign : {"", "[]", R"({"global_step": 5})", R"({"format": "nought-trainer-state-1"})"}) {
    folder.write("trainer_state.json", foreign);
    EXPECT_FALSE(read_export_record(folder.path()).has_value()) << foreign;
  }
  folder.write("trainer_state.json", R"({"format": "nought-trainer-state-9"})");
  EXPECT_THAT(message_of<IoError>([&] { read_export_record(folder.path()); }), HasSubstr("nought-trainer-state-9"));
}

TEST(ExportRecord, later_times_are_greater_texts) {
  const std::string before = utc_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_LT(before, utc_now());
}

}  // namespace
}  // namespace nought::export_record_test
