// Sequences are spread over parts: each once, no part beyond its room while one can do with less.
#include "nought/data/answer_packing.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace nought::answer_packing_test {
namespace {

TEST(AnswerPacking, takes_as_few_micro_batches_as_tokens_need) {
  const BatchLayout layout{.micro_batch = 4, .accumulation = 4, .world_size = 2};
  std::vector<int64_t> lengths(32, 5);
  lengths[7] = 19;
  int64_t most = 0;
  const AnswerPacking packing(layout, /*whole_accumulation=*/false);
  const AnswerPacking::Parts parts = packing.pack(lengths, 48, most);
  EXPECT_EQ(packing.layout_of(parts).accumulation, 2) << "174 tokens, 96 for both ranks at once";
  EXPECT_LE(most, 48);
  std::vector<int64_t> places = packing.places_of(parts, 0, 1);
  const std::vector<int64_t> of_other = packing.places_of(parts, 1, 1);
  places.insert(places.end(), of_other.begin(), of_other.end());
  std::sort(places.begin(), places.end());
  std::vector<int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(places, all);
  EXPECT_EQ(AnswerPacking(layout, /*whole_accumulation=*/true).pack(lengths, 48, most).size(), 8U);
  EXPECT_EQ(packing.pack(lengths, 20, most).size(), 8U) << "without enough room, as many to each part as it is of rows";
  EXPECT_EQ(most, 34);
}

}  // namespace
}  // namespace nought::answer_packing_test
