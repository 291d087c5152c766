#include "nought/comm/streaming.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace nought::streaming_test {
namespace {

TEST(Streaming, copies_every_byte_and_no_other_at_any_alignment) {
  std::vector<unsigned char> source(1024), target(1024);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 7 + 1);
  for (size_t from : {0, 1, 16, 63}) {
    for (size_t to : {0, 1, 32, 63}) {
      for (size_t bytes : {0, 1, 63, 64, 65, 128, 200, 513}) {
        std::fill(target.begin(), target.end(), 0);
        copy_streaming(target.data() + to, source.data() + from, bytes);
        EXPECT_EQ(std::memcmp(target.data() + to, source.data() + from, bytes), 0);
        for (size_t i = 0; i < target.size(); ++i) {
          if (to <= i && i < to + bytes) continue;
          EXPECT_EQ(target[i], 0) << "byte " << i << " of " << bytes << " at " << to;
        }
      }
    }
  }
}

/// The share of chunks that goes past the caches when the two ways take so long per byte.
double streamed_share(StoreChoice& choice, double through_caches, double past_them) {
  constexpr int kChunks = 1000;
  int streamed = 0;
  for (int i = 0; i < kChunks; ++i) {
    streamed += choice.streaming();
    choice.took(choice.streaming() ? past_them : through_caches);
  }
  return static_cast<double>(streamed) / kChunks;
}

TEST(StoreChoice, follows_what_is_much_faster_and_notices_when_that_changes) {
  StoreChoice choice;
  EXPECT_LT(streamed_share(choice, 1, 3), 0.05) << "the readers share the cache";
  EXPECT_GT(streamed_share(choice, 20, 3), 0.95) << "moved to a core far away";
  EXPECT_LT(streamed_share(choice, 1, 3), 0.10) << "and back";
  EXPECT_LT(streamed_share(choice, 3, 2), 0.05) << "a small gain is not worth what the reader pays";
}

TEST(StoreChoice, an_interruption_decides_nothing) {
  StoreChoice choice;
  streamed_share(choice, 1, 3);
  choice.took(1000);
  EXPECT_LT(streamed_share(choice, 1, 3), 0.05);
}

}  // namespace
}  // namespace nought::streaming_test
