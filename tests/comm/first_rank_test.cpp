#include "nought/comm/first_rank.h"

#include <atomic>

#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/comm/thread.h"

namespace nought::first_rank_test {
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

TEST(FirstRank, every_rank_hears_what_each_has_to_say) {
  for (const int size : {1, 2, 3})
    run_ranks(size, [&](Communicator& ranks, const Context& context) {
      const auto of = [](int rank) {
        return std::string(static_cast<size_t>(rank * 50'000), static_cast<char>('a' + rank));
      };
      const std::vector<std::string> texts = texts_of_ranks(ranks, context, of(ranks.rank()));
      ASSERT_EQ(texts.size(), static_cast<size_t>(size));
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(texts[static_cast<size_t>(rank)], of(rank)) << rank;
    });
}

}  // namespace
}  // namespace nought::first_rank_test
