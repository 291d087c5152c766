#include "nought/observe/live_line.h"

#include "support/printed.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

const std::string kWipe = "\r\x1b[K";

TEST(LiveLine, on_a_terminal_the_line_below_is_rewritten_in_place) {
  const std::string text = test::printed([](std::FILE* out) {
    LiveLine line(out, true);
    line.show("1%");
    line.show("2%");
    line.print("done");
    line.print("more");
  });
  EXPECT_EQ(text, kWipe + "1%" + kWipe + "2%" + kWipe + "done\nmore\n");
}

TEST(LiveLine, elsewhere_only_lines_that_stay_are_printed) {
  const std::string text = test::printed([](std::FILE* out) {
    LiveLine line(out, false);
    line.show("1%");
    line.print("done");
    line.clear();
  });
  EXPECT_EQ(text, "done\n");
}

TEST(LiveLine, what_is_shown_goes_when_it_is_cleared) {
  const std::string text = test::printed([](std::FILE* out) {
    LiveLine line(out, true);
    line.show("1%");
    line.clear();
    line.clear();
  });
  EXPECT_EQ(text, kWipe + "1%" + kWipe);
}

}  // namespace
}  // namespace nought
