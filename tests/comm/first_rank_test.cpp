#include "nought/comm/first_rank.h"

#include <atomic>

#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/comm/thread.h"

namespace nought {
namespace {

TEST(FirstRank, every_rank_has_what_the_first_one_found) {
  for (const int size : {1, 2, 3})
    for (const std::string& text : {std::string(), std::string("out/checkpoint-20"), std::string(100'000, 'x')}) {
      std::atomic<int> looked = 0;
      run_ranks(size, [&](Communicator& ranks, const Context& context) {
        EXPECT_EQ(found_by_first(ranks, context, [&] { return ++looked, text; }), text);
      });
      EXPECT_EQ(looked, 1) << "on rank 0 alone";
    }
}

TEST(FirstRank, what_it_throws_is_the_cause_that_all_end_for) {
  EXPECT_THROW(run_ranks(3,
                         [](Communicator& ranks, const Context& context) {
                           found_by_first(ranks, context, []() -> std::string { fail<IoError>("nothing there"); });
                         }),
               IoError);
}

}  // namespace
}  // namespace nought
