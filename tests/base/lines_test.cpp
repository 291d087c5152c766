// Nothing that is printed is wider than the terminal, and nothing is cut.
#include "nought/base/lines.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::lines_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int widest(const std::string& text) {
  int columns = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) columns = std::max(columns, columns_of(line));
  return columns;
}

TEST(Lines, columns_are_characters) {
  EXPECT_EQ(columns_of(""), 0);
  EXPECT_EQ(columns_of("caf\u00e9 \u2014"), 6);
}

TEST(Lines, of_fields_those_that_matter_least_go_first_and_none_is_cut) {
  const std::vector<Field> fields{{"step 1/10", 0}, {"loss 2.5", 1}, {"", 0}, {"lr 1e-3", 3}, {"ETA 5s", 2}};
  EXPECT_EQ(fit_fields(fields, 0), "step 1/10  loss 2.5  lr 1e-3  ETA 5s");
  EXPECT_EQ(fit_fields(fields, 36), fit_fields(fields, 0));
  EXPECT_EQ(fit_fields(fields, 35), "step 1/10  loss 2.5  ETA 5s");
  EXPECT_EQ(fit_fields(fields, 20), "step 1/10  loss 2.5");
  EXPECT_EQ(fit_fields(fields, 4), "step 1/10");
  EXPECT_EQ(fit_fields({{"a", 1}, {"b", 1}}, 2), "a") << "of equals the last goes first";
}

TEST(Lines, long_lines_go_on_below) {
  EXPECT_EQ(wrap("one two three", 0), "one two three");
  EXPECT_EQ(wrap("one two three", 13, 4), "one two three");
  EXPECT_EQ(wrap("one two three", 9, 4), "one two\n    three");
  EXPECT_EQ(wrap("data  one two\nshort", 9, 2), "data  one\n  two\nshort");
  EXPECT_EQ(wrap("averylongword x", 5, 1), "averylongword\n x") << "no word is broken";
  EXPECT_EQ(wrap("    averylongword", 5, 1), "    averylongword");
  EXPECT_EQ(wrap("ends here   ", 9), "ends here   ") << "nothing but spaces goes below";
}

TEST(Lines, a_bar_gets_shorter_before_fields_go) {
  const std::vector<Field> fields{{"50.0%", 0}, {"ETA 3s", 1}, {"1.20M tokens", 2}};
  EXPECT_EQ(bar_line(0.5, fields, 0),
            "[" + std::string(15, '#') + std::string(15, ' ') + "] 50.0%  ETA 3s  1.20M tokens");
  EXPECT_EQ(bar_line(0.5, fields, 40), "[#####     ] 50.0%  ETA 3s  1.20M tokens");
  EXPECT_EQ(bar_line(0.5, fields, 30), "[#####     ] 50.0%  ETA 3s");
  EXPECT_EQ(bar_line(0.5, fields, 12), "50.0%");
  EXPECT_EQ(bar_line(0.5, fields, 13), "50.0%  ETA 3s");
  for (const int width : {40, 80, 120}) EXPECT_LE(columns_of(bar_line(1, fields, width)), width);
}

Table a_table() {
  return {.ranks = {0, 2, 1},
          .rows = {{"operation", "time", "FLOP", "B/s"},
                   {"MatMul 50304 x 768 x 512", "12.5 ms", "1 G", "2 G"},
                   {"the rest", "3 ms"}},
          .name_columns = 30,
          .cell_columns = 10};
}

TEST(Lines, a_table_loses_columns_and_no_letter) {
  const std::string whole = fit_table(a_table(), 0);
  EXPECT_EQ(whole, fit_table(a_table(), 120));
  EXPECT_THAT(whole, HasSubstr("operation" + std::string(29, ' ') + "time        FLOP         B/s\n"));
  EXPECT_THAT(whole, HasSubstr("the rest" + std::string(30, ' ') + "3 ms\n"));
  const std::string narrow = fit_table(a_table(), 40);
  EXPECT_THAT(narrow, HasSubstr("MatMul 50304 x 768 x 512  12.5 ms  2 G\n"));
  EXPECT_THAT(narrow, Not(HasSubstr("FLOP")));
  const std::string narrowest = fit_table(a_table(), 22);
  EXPECT_THAT(narrowest, HasSubstr("MatMul 50304\nx 768 x 512    12.5 ms\n"));
  for (const int width : {22, 40, 80, 120}) EXPECT_LE(widest(fit_table(a_table(), width)), width) << width;
}

}  // namespace
}  // namespace nought::lines_test
