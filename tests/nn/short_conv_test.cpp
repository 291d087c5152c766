// Sequences of a batch as layers with states take them.
#include "nought/nn/short_conv.h"

#include <gtest/gtest.h>

namespace nought::short_conv_test {
namespace {

TEST(StateSpans, begin_from_zeros_or_go_on_where_the_cache_has_the_sequence) {
  const Sequences packed{.spans = {{0, 5, 0, 5}, {5, 3, 5, 3}}, .positions = {}};
  for (const StateSpan& span : state_spans(packed, nullptr)) EXPECT_FALSE(span.continues);
  const StateCache cache{.inputs = {}, .capacity = 16};
  const Sequences next{.spans = {{0, 1, 32, 7}, {1, 4, 16, 4}}, .positions = {}};
  const std::vector<StateSpan> spans = state_spans(next, &cache);
  EXPECT_EQ(spans[0].state, 2);
  EXPECT_TRUE(spans[0].continues);
  EXPECT_EQ(spans[1].state, 1);
  EXPECT_EQ(spans[1].begin, 1);
  EXPECT_FALSE(spans[1].continues) << "it is fed from its begin";
}

}  // namespace
}  // namespace nought::short_conv_test
