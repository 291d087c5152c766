// Masks of pruning against DeepSpeed's, and by their patterns.
#include "nought/compress/masks.h"

#include <numeric>

#include "support/golden_root.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::masks_test {
namespace {

using Values = std::vector<float>;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Masks, those_of_magnitudes_are_deepspeeds) {
  const Json golden = read_json_file(test::golden_root() + "/scale/compression.json");
  for (const Json& each : golden.at("pruning")) {
    const auto weight = each.at("weight").get<Values>();
    const double ratio = each.at("dense_ratio").get<double>();
    const Mask mask = each.at("kind") == "row_pruning" ? l1_rows(weight, each.at("shape")[0].get<int64_t>(), ratio)
                                                       : l1_mask(weight, ratio);
    EXPECT_EQ(mask, each.at("mask").get<Mask>()) << each.at("kind") << ", " << ratio;
  }
}

TEST(Masks, so_many_stay_as_the_ratio_rounded_up) {
  const Values scores{3, 1, 2, 2, 5};
  EXPECT_THAT(keep_largest(scores, 0.41), ElementsAre(1, 0, 1, 0, 1)) << "of equal scores the first stays";
  EXPECT_THAT(keep_largest(scores, 1), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(l1_rows(Values{1, -1, 3, 0, -2, 0.5f}, 3, 0.5), ElementsAre(0, 1, 1));
}

TEST(Masks, blocks_are_pruned_whole) {
  const BlockPattern pattern = block_pattern("2x1", "block_pattern");
  // The columns' means are 1, 4, 2, 3 in the upper rows and 8, 5, 6, 7 below.
  const Values scores{1, 4, 2, 3, 1, 4, 2, 3, 8, 5, 6, 7, 8, 5, 6, 7};
  EXPECT_THAT(pattern_mask(pattern, scores, 4, 0.25), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(Masks, two_of_four_neighbours_stay) {
  const BlockPattern pattern = block_pattern("2:4", "block_pattern");
  const Values scores{1, 4, 2, 3, 8, 5, 6, 7};
  EXPECT_THAT(pattern_mask(pattern, scores, 8, 0.5), ElementsAre(0, 1, 0, 1, 1, 0, 0, 1));
  EXPECT_THAT(pattern_mask(pattern, scores, 8, 0.25), ElementsAre(0, 1, 0, 1, 1, 1, 1, 1))
      << "half of the groups: that which loses less";
  EXPECT_THAT(pattern_mask(pattern, scores, 8, 0), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(Masks, patterns_that_do_not_divide_are_refused_by_name) {
  using test::message_of;
  EXPECT_THAT(message_of<ConfigError>([] { (void)block_pattern("4", "P"); }), HasSubstr("P: expected blocks such as"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)block_pattern("4:2", "P"); }), HasSubstr("prunes all"));
  EXPECT_THAT(message_of<ConfigError>([] { require_divides(block_pattern("4x1", "P"), "up_proj", 6, 8); }),
              HasSubstr("up_proj: a matrix of 6 rows and 8 columns has no whole blocks of 4x1"));
  EXPECT_THAT(message_of<ConfigError>([] { require_divides(block_pattern("2:4", "P"), "up_proj", 8, 6); }),
              HasSubstr("up_proj: rows of 6 weights have no whole groups of 4"));
}

}  // namespace
}  // namespace nought::masks_test
