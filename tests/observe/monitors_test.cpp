#include "nought/observe/monitors.h"

#include <cstring>
#include <iterator>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

StepReport report_of(int64_t step, double loss) { return {.step = step, .loss = loss, .grad_norm = 2, .lr = 0.5}; }

TEST(EventFile, checksums_are_those_of_the_specification) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // RFC 3720's check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

/// Reads records back as TensorFlow's reader does: length, checksum, data, checksum.
std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  const auto number = [&](size_t at, size_t count) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, count);
    return value;
  };
  const auto unmasked = [](uint64_t masked) {
    const uint32_t rotated = static_cast<uint32_t>(masked) - 0xA282EAD8u;
    return (rotated >> 17) | (rotated << 15);
  };
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = number(at, 8);
    EXPECT_EQ(crc32c(std::string_view(bytes).substr(at, 8)), unmasked(number(at + 8, 4)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(crc32c(records.back()), unmasked(number(at + 12 + length, 4)));
    at += 16 + length;
  }
  return records;
}

TEST(EventFile, a_scalar_is_an_event_with_step_tag_and_value) {
  const test::TempFolder folder;
  EventFile file(folder.path() / "board");
  file.add_scalar("loss", 300, 0.5);
  const std::vector<std::string> records = records_of(content_of(file.path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");            // after the time: field 3
  std::string expected("\x10\xac\x02");  // field 2: step 300
  expected += std::string("\x2a\x0d\x0a\x0b\x0a\x04loss\x15", 11) + std::string("\x00\x00\x00\x3f", 4);
  EXPECT_EQ(records[1].substr(9), expected);
}

TEST(TensorBoardMonitor, writes_four_scalars_for_each_step) {
  const test::TempFolder folder;
  TensorBoardMonitor monitor(folder.path(), 8);
  monitor.on_start({});
  monitor.on_step(report_of(1, 3));
  monitor.on_step(report_of(2, 2));
  const fs::path file = fs::directory_iterator(folder.path())->path();
  EXPECT_EQ(file.filename().string().find("events.out.tfevents."), 0u);
  EXPECT_EQ(records_of(content_of(file)).size(), 1u + 2 * 4);
}

TEST(CsvMonitor, a_row_counts_samples_and_a_resumed_run_keeps_the_rows_before_it) {
  const test::TempFolder folder;
  {
    CsvMonitor monitor(folder.path(), 8);
    monitor.on_start({});
    for (int64_t step = 1; step <= 3; ++step) monitor.on_step(report_of(step, 4.0 - static_cast<double>(step)));
  }
  const fs::path losses = folder.path() / "Train_Samples_train_loss.csv";
  EXPECT_EQ(content_of(losses), "step,Train/Samples/train_loss\n8,3\n16,2\n24,1\n");
  RunSummary resumed;
  resumed.first_step = 2;
  CsvMonitor monitor(folder.path(), 8);
  monitor.on_start(resumed);
  monitor.on_step(report_of(3, 0.25));
  EXPECT_EQ(content_of(losses), "step,Train/Samples/train_loss\n8,3\n16,2\n24,0.25\n");
}

}  // namespace
}  // namespace nought
