#include "nought/parallel/context_rows.h"

#include <numeric>

#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::context_rows_test {
namespace {

/// Also where ranks have different numbers of tokens.
TEST(ContextRows, what_each_rank_takes_of_all_comes_back_in_order) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t length : {8, 9, 37})
      run_ranks(ranks, [&](Communicator& world, const Context& context) {
        const Mesh mesh(world, GridSizes{.context = ranks});
        const ContextTokens tokens{ContextRanks(mesh, ContextMethod::ring), 3, length};
        std::vector<float> all(static_cast<size_t>(3 * length));
        std::iota(all.begin(), all.end(), 1.0F);
        const std::vector<float> own = local_of<float>(all, tokens);
        ASSERT_EQ(static_cast<int64_t>(own.size()), tokens.tokens(tokens.ranks.rank));
        const Tensor rows = context.upload<float>({static_cast<int64_t>(own.size()), 1}, own);
        EXPECT_EQ(gather_rows(context, rows, tokens).to_vector<float>(), all) << ranks << " ranks, length " << length;
      });
}

}  // namespace
}  // namespace nought::context_rows_test
