#include "nought/io/coverage.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "nought/tensor/random.h"

namespace nought::coverage_test {
namespace {

TEST(Coverage, grows_in_any_order_and_refuses_what_was_there) {
  Coverage coverage;
  EXPECT_TRUE(coverage.add({10, 20}));
  EXPECT_TRUE(coverage.add({0, 5}));
  EXPECT_TRUE(coverage.add({5, 10})) << "touching both";
  EXPECT_EQ(coverage.size(), 20);
  for (const Interval& again : {Interval{0, 1}, Interval{19, 21}, Interval{0, 20}, Interval{7, 8}, Interval{0, 30}})
    EXPECT_FALSE(coverage.add(again)) << again.begin << " to " << again.end;
  EXPECT_EQ(coverage.size(), 20) << "what is refused changes nothing";
  EXPECT_TRUE(coverage.add({20, 21}));
  EXPECT_TRUE(coverage.add({3, 3})) << "nothing may be added anywhere";
}

/// Against a list of flags, one for each element.
TEST(Coverage, agrees_with_counting_every_element) {
  for (uint64_t round = 0; round < 50; ++round) {
    Coverage coverage;
    std::vector<bool> there(60, false);
    for (uint64_t i = 0; i < 40; ++i) {
      const Philox draw = philox(round, i);
      const int64_t begin = draw[0] % 60, end = std::min<int64_t>(60, begin + draw[1] % 8);
      const auto first = there.begin() + begin, last = there.begin() + end;
      const bool fresh = std::find(first, last, true) == last;
      ASSERT_EQ(coverage.add({begin, end}), fresh) << "round " << round << ": " << begin << " to " << end;
      if (fresh) std::fill(first, last, true);
      ASSERT_EQ(coverage.size(), std::count(there.begin(), there.end(), true));
    }
  }
}

}  // namespace
}  // namespace nought::coverage_test
