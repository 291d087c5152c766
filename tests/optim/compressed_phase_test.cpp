// When optimizers that compress begin to, and what methods say of their updates.
#include "nought/optim/compressed_phase.h"

#include <gtest/gtest.h>

namespace nought::compressed_phase_test {
namespace {

TEST(CompressedPhase, the_first_compressed_update_is_the_first_that_is_not_plain) {
  const auto expect_first = [](const Method& method) {
    int64_t update = 1;
    while (phase_of(method, update) == CompressedPhase::plain) ++update;
    EXPECT_EQ(first_compressed(method), update);
  };
  for (const int64_t freeze : {1, 2, 9}) {
    expect_first(OneBitAdamOptions{.freeze_step = freeze});
    expect_first(OneBitLambOptions{.freeze_step = freeze});
    for (const int64_t scaler : {1, 2, 3, 4, 16})
      expect_first(ZeroOneAdamOptions{.var_freeze_step = freeze, .var_update_scaler = scaler});
  }
}

TEST(CompressedPhase, methods_that_do_not_compress_are_always_plain) {
  EXPECT_EQ(phase_of(LambOptions{}, 1'000'000), CompressedPhase::plain);
  EXPECT_THROW(first_compressed(AdamOptions{}), Error);
}

TEST(UpdateExchange, methods_say_whether_ranks_talk_to_each_other_for_an_update) {
  for (const Method& method : {Method{AdamOptions{}}, Method{SgdOptions{}}, Method{LionOptions{}}})
    EXPECT_FALSE(talks_to_ranks(method));
  for (const Method& method : {Method{LambOptions{}}, Method{MuonOptions{}}})
    EXPECT_TRUE(talks_to_ranks(method) && gives_direction(method) && !compresses(method));
  for (const Method& method : {Method{OneBitAdamOptions{}}, Method{OneBitLambOptions{}}, Method{ZeroOneAdamOptions{}}})
    EXPECT_TRUE(talks_to_ranks(method) && compresses(method) && !gives_direction(method));
}

}  // namespace
}  // namespace nought::compressed_phase_test
