#include "support/size.h"

#include <cstdlib>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace nought::test {
namespace {

/// The marks of each file by their lines; that of the whole file has line 0.
std::map<std::string, std::map<int, std::string>>& marks() {
  static std::map<std::string, std::map<int, std::string>> marks;
  return marks;
}

std::string name_of(const ::testing::TestInfo& test) { return std::string(test.test_suite_name()) + "." + test.name(); }

template <typename Visit>
void for_each_test(const Visit& visit) {
  const ::testing::UnitTest& program = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *program.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) visit(*suite.GetTestInfo(t));
  }
}

/// The lines of each file in which tests begin.
std::map<std::string, std::set<int>> lines_of_tests() {
  std::map<std::string, std::set<int>> lines;
  for_each_test([&](const ::testing::TestInfo& test) { lines[test.file()].insert(test.line()); });
  return lines;
}

/// The mark between the test before this one and this one, or else the file's.
std::string size_of(const ::testing::TestInfo& test, const std::set<int>& lines) {
  const auto of_file = marks().find(test.file());
  if (of_file == marks().end()) return "unmarked";
  const auto here = lines.find(test.line());
  const int before = here == lines.begin() ? 0 : *std::prev(here);
  const auto mark = of_file->second.upper_bound(before);
  if (mark != of_file->second.end() && mark->first <= test.line()) return mark->second;
  const auto whole = of_file->second.find(0);
  return whole == of_file->second.end() ? "unmarked" : whole->second;
}

}  // namespace

bool mark_size(const char* size, const char* file, int line) {
  marks()[file][line] = size;
  return true;
}

std::string list_sizes() {
  const std::map<std::string, std::set<int>> lines = lines_of_tests();
  std::string list;
  for_each_test([&](const ::testing::TestInfo& test) {
    list += size_of(test, lines.at(test.file())) + " " + name_of(test) + "\n";
  });
  return list;
}

std::string without_long_tests(const std::string& filter) {
  if (std::getenv("NOUGHT_LONG") != nullptr) return filter;
  const std::map<std::string, std::set<int>> lines = lines_of_tests();
  std::string left_out;
  for_each_test([&](const ::testing::TestInfo& test) {
    if (size_of(test, lines.at(test.file())) == "long") left_out += ":" + name_of(test);
  });
  if (left_out.empty()) return filter;
  if (filter.find('-') == std::string::npos) left_out[0] = '-';
  return filter + left_out;
}

}  // namespace nought::test
