#include "nought/comm/traffic_sums.h"

#include <gtest/gtest.h>

namespace nought::traffic_sums_test {
namespace {

TEST(TrafficSums, are_of_bytes_elements_and_calls_of_each_collective) {
  Traffic sum, more;
  sum.counts[0] = {.bytes = 10, .elements = 5, .calls = 1};
  more.counts[0] = {.bytes = 4, .elements = 2, .calls = 3};
  more.counts[1] = {.bytes = 7, .elements = 7, .calls = 1};
  add(sum, more, 2);
  EXPECT_EQ(sum.counts[0].bytes, 18);
  EXPECT_EQ(sum.counts[0].elements, 9);
  EXPECT_EQ(sum.counts[0].calls, 7);
  EXPECT_EQ(sum.counts[1].bytes, 14);
  const Traffic left = sum - more;
  EXPECT_EQ(left.counts[0].bytes, 14);
  EXPECT_EQ(left.counts[1].calls, 1);
}

}  // namespace
}  // namespace nought::traffic_sums_test
