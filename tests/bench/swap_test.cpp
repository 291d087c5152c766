#include "nought/bench/swap.h"

#include <filesystem>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/measure/swap_rates.h"

namespace nought::swap_test {
namespace {

using testing::HasSubstr;

SwapRates rates(int depth, double write, double read) {
  return {"io_uring", {.queue_depth = depth, .backend = AioBackend::io_uring}, {{write}}, {{read}}};
}

TEST(SwapBench, the_best_setting_is_the_smallest_of_those_that_move_most) {
  SwapReport report;
  report.settings = {rates(1, 40, 50), rates(8, 70, 79), rates(2, 78, 70), rates(32, 75, 75)};
  EXPECT_EQ(report.best().options.queue_depth, 2);
  report.settings.push_back(rates(64, 90, 90));
  EXPECT_EQ(report.best().options.queue_depth, 64);
  report.settings.clear();
  EXPECT_THROW(report.best(), Error);
}

TEST(SwapBench, every_setting_is_measured_beside_plain_calls_and_the_file_is_removed) {
  const test::TempFolder folder;
  const auto memory = Memory::create();
  const SwapReport report = bench_swap(*memory, {.folder = folder.path().string(),
                                                 .seconds = 1e-3,
                                                 .samples = 2,
                                                 .quick = true,
                                                 .least_bytes = 8 << 20,
                                                 .most_bytes = 16 << 20});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(report.file_bytes, 8 << 20);
  EXPECT_EQ(report.written_bytes,
            (24 << 20) + static_cast<int64_t>(report.plain.size() + report.settings.size()) * report.file_bytes);
  for (const auto* list : {&report.plain, &report.settings})
    for (const SwapRates& each : *list) {
      ASSERT_EQ(each.write.values.size(), 1u) << each.name;  // the time was over after one of each
      ASSERT_EQ(each.read.values.size(), 1u) << each.name;
      EXPECT_GT(each.write.values[0], 0);
      EXPECT_GT(each.read.values[0], 0);
    }
  const std::string table = to_table(report);
  EXPECT_THAT(table, HasSubstr("  best\n"));
  EXPECT_THAT(table, HasSubstr("for ds_config.json: \"aio\": {\"block_size\":"));
  EXPECT_EQ(to_figures(report).size(), 2 * (report.plain.size() + report.settings.size()));
}

TEST(SwapBench, a_folder_without_room_is_named_before_anything_is_written) {
  const auto memory = Memory::create();
  EXPECT_THAT(test::message_of<IoError>([&] { bench_swap(*memory, {.folder = "/no such folder"}); }),
              HasSubstr("cannot measure /no such folder: No such file"));
  const test::TempFolder folder;
  EXPECT_THAT(test::message_of<IoError>([&] { require_room(folder.path().string(), int64_t{1} << 60); }),
              HasSubstr("up to 1024.0 PiB are written, and "));
}

}  // namespace
}  // namespace nought::swap_test
