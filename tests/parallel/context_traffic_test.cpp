// What ranks that share sequences send for attention: the formulas, and the counters of real calls.
#include "support/context_traffic.h"

#include "support/context_checks.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::context_traffic_test {
namespace {

using test::ContextCase;
using test::ContextTraffic;
using test::key_gradients_traffic;
using test::keys_traffic;

ContextTokens over(int ranks, int rank, int64_t rows, int64_t length, ContextMethod method) {
  ContextTokens tokens{.rows = rows, .length = length};
  tokens.ranks.ranks = ranks, tokens.ranks.rank = rank, tokens.ranks.method = method;
  return tokens;
}

TEST(ContextTraffic, of_rows_that_divide_every_rank_sends_its_share_to_all_others) {
  for (const int ranks : {2, 3, 4, 8}) {
    const int64_t rows = 3, length = 48, width = 10, expected = (ranks - 1) * rows * length / ranks * width;
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextSpans ring(over(ranks, rank, rows, length, ContextMethod::ring), {});
      EXPECT_EQ(keys_traffic(ring, width), ContextTraffic{.send = expected});
      EXPECT_EQ(key_gradients_traffic(ring, width), ContextTraffic{.send = expected});
      const ContextSpans gather(over(ranks, rank, rows, length, ContextMethod::gather), {});
      EXPECT_EQ(keys_traffic(gather, width), ContextTraffic{.all_gather = expected});
      EXPECT_EQ(key_gradients_traffic(gather, width), ContextTraffic{.reduce_scatter = expected});
    }
  }
}

TEST(ContextTraffic, one_rank_sends_nothing) {
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather}) {
    const ContextSpans spans(over(1, 0, 2, 16, method), {});
    EXPECT_EQ(keys_traffic(spans, 4), ContextTraffic{});
    EXPECT_EQ(key_gradients_traffic(spans, 4), ContextTraffic{});
  }
}

/// The keys of the first of two ranks are read by the other one, and not the other way round.
TEST(ContextTraffic, keys_that_nobody_reads_do_not_travel) {
  AttentionOptions documents;
  documents.spans = {{0, 2, 0, 2}, {2, 4, 2, 4}, {6, 2, 6, 2}};  // chunks of 2: ranks 0 1 1 0
  const ContextSpans alone(over(2, 0, 1, 8, ContextMethod::ring), documents);
  EXPECT_EQ(keys_traffic(alone, 1), ContextTraffic{});
  documents.spans = {{0, 3, 0, 3}, {3, 3, 3, 3}, {6, 2, 6, 2}};  // rank 1 begins with the end of rank 0's document
  EXPECT_EQ(keys_traffic(ContextSpans(over(2, 0, 1, 8, ContextMethod::ring), documents), 1), ContextTraffic{.send = 4});
  EXPECT_EQ(keys_traffic(ContextSpans(over(2, 1, 1, 8, ContextMethod::ring), documents), 1), ContextTraffic{});
  EXPECT_EQ(key_gradients_traffic(ContextSpans(over(2, 1, 1, 8, ContextMethod::ring), documents), 1),
            ContextTraffic{.send = 4});
}

/// A forward pass sends keys; a backward pass sends them again, and gradients.
TEST(ContextTraffic, the_counters_of_both_methods_agree_to_the_element) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      for (uint64_t seed = 1; seed <= 12; ++seed) {
        for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather}) {
          ContextCase of = test::random_case(seed, DType::f32);
          of.sinks = false;
          const ContextTokens tokens = test::context_tokens(world, of, method, seed % 2 == 0 ? 1 : 0);
          const Traffic before = world.traffic();
          test::attend_part(context, of, tokens);
          const Traffic after = world.traffic();
          const auto sent = [&](Collective::Kind collective) {
            return after[collective].elements - before[collective].elements;
          };
          const int64_t width = of.heads.num_kv_heads * (of.heads.head_dim + of.heads.value_dim());
          const ContextSpans spans(tokens, of.options());
          const ContextTraffic keys = keys_traffic(spans, width), gradients = key_gradients_traffic(spans, width);
          EXPECT_EQ(sent(Collective::send), 2 * keys.send + gradients.send) << of.str();
          EXPECT_EQ(sent(Collective::all_gather), 2 * keys.all_gather) << of.str();
          EXPECT_EQ(sent(Collective::reduce_scatter), gradients.reduce_scatter) << of.str();
          EXPECT_EQ(after.total_elements() - before.total_elements(),
                    2 * (keys.send + keys.all_gather) + gradients.send + gradients.reduce_scatter);
        }
      }
    });
  }
}

}  // namespace
}  // namespace nought::context_traffic_test
