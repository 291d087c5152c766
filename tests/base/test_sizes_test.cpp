// The sizes of tests, as the program of this folder lists them.
#include "support/environment.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::test_sizes_test {
namespace {

using test::Environment;
using test::list_sizes;
using test::without_long_tests;
using ::testing::HasSubstr;

class EachSize : public ::testing::TestWithParam<int> {};

NOUGHT_SIZE(medium);
TEST_P(EachSize, of_a_marked_test_is_its_mark) { EXPECT_THAT(list_sizes(), HasSubstr("medium Numbers/EachSize.of_")); }
TEST(TestSizes, a_mark_is_that_of_the_next_test_alone) {
  const std::string listed = "\n" + list_sizes();
  EXPECT_THAT(listed, HasSubstr("\nmedium Numbers/EachSize.of_a_marked_test_is_its_mark/0\n"));
  EXPECT_THAT(listed, HasSubstr("\nmedium Numbers/EachSize.of_a_marked_test_is_its_mark/1\n"));
  EXPECT_THAT(listed, HasSubstr("\nunmarked TestSizes.a_mark_is_that_of_the_next_test_alone\n"));
  EXPECT_THAT(listed, HasSubstr("\nlong TestSizes.a_long_test_runs_where_it_is_asked_for\n"));
}

NOUGHT_SIZE(long);
TEST(TestSizes, a_long_test_runs_where_it_is_asked_for) { EXPECT_NE(std::getenv("NOUGHT_LONG"), nullptr); }

TEST(TestSizes, long_tests_are_filtered_out_unless_asked_for) {
  const std::string name = "TestSizes.a_long_test_runs_where_it_is_asked_for";
  {
    const Environment environment{{"NOUGHT_LONG", ""}};
    EXPECT_EQ(without_long_tests("*"), "*-" + name);
    EXPECT_EQ(without_long_tests("A.*-B.*"), "A.*-B.*:" + name);
  }
  const Environment environment{{"NOUGHT_LONG", "1"}};
  EXPECT_EQ(without_long_tests("*"), "*");
}

INSTANTIATE_TEST_SUITE_P(Numbers, EachSize, ::testing::Values(1, 2));

}  // namespace
}  // namespace nought::test_sizes_test
