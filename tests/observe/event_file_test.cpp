#include "nought/observe/event_file.h"

#include "support/event_records.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::event_file_test {
namespace {

TEST(EventFile, checksums_are_those_of_the_specification) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // RFC 3720's check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(EventFile, a_scalar_is_an_event_with_step_tag_and_value) {
  const test::TempFolder folder;
  EventFile file(folder.path() / "board");
  file.add_scalar("loss", 300, 0.5);
  const std::vector<std::string> records = test::records_of(test::read_bytes(file.path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");            // after the time: field 3
  std::string expected("\x10\xac\x02");  // field 2: step 300
  expected += std::string("\x2a\x0d\x0a\x0b\x0a\x04loss\x15", 11) + std::string("\x00\x00\x00\x3f", 4);
  EXPECT_EQ(records[1].substr(9), expected);
}

}  // namespace
}  // namespace nought::event_file_test
