#include "nought/observe/live_line.h"

#include "support/printed.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::live_line_test {
namespace {

const std::string kWipe = "\r\x1b[K";

int eighty() { return 80; }
int none() { return 0; }

TEST(LiveLine, on_a_terminal_the_line_below_is_rewritten_in_place) {
  const std::string text = test::printed([](std::FILE* out) {
    LiveLine line(out, eighty);
    line.show("1%");
    line.show("2%");
    line.print("done");
    line.print("more");
  });
  EXPECT_EQ(text, kWipe + "1%" + kWipe + "2%" + kWipe + "done\nmore\n");
}

TEST(LiveLine, elsewhere_only_lines_that_stay_are_printed_whole) {
  const std::string wide(200, 'x'), text = test::printed([&](std::FILE*out) {
                                      LiveLine line(out, none);
                                      line.show("1%");
                                      line.print(wide + " y");
                                      line.clear();
                                    });
  EXPECT_EQ(text, wide + " y\n");
}

TEST(LiveLine, a_line_that_cannot_be_written_is_an_error_at_once) {
  std::FILE* full = std::fopen("/dev/full", "w");
  EXPECT_THROW(LiveLine(full, none).print("step 1"), IoError);
  EXPECT_THROW(LiveLine(full, eighty).show("step 1"), IoError);
  std::fclose(full);
}

TEST(LiveLine, what_is_shown_goes_when_it_is_cleared) {
  const std::string text = test::printed([](std::FILE* out) {
    LiveLine line(out, eighty);
    line.show("1%");
    line.clear();
    line.clear();
  });
  EXPECT_EQ(text, kWipe + "1%" + kWipe);
}

TEST(LiveLine, a_terminal_that_becomes_narrower_is_wiped_on_all_rows_and_kept_to) {
  int columns = 80;
  const std::string shown(60, 'x'), text = test::printed([&](std::FILE*out) {
                                      LiveLine line(out, [&] { return columns; });
                                      line.show(shown);
                                      columns = 25;
                                      line.print("some words that are longer than this", 2);
                                      columns = 120;
                                      line.print("some words that are longer than this", 2);
                                    });
  EXPECT_EQ(text, kWipe + shown + "\x1b[2A\r\x1b[J" + "some words that are\n  longer than this\n" +
                      "some words that are longer than this\n");
}

}  // namespace
}  // namespace nought::live_line_test
