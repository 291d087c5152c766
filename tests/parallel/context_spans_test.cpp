// Which queries of a rank meet which keys, against a mask that is spelled out; and that the pieces make the whole.
#include "nought/parallel/context_spans.h"

#include <set>
#include <utility>

#include "support/context_checks.h"
#include <gtest/gtest.h>

#include "nought/parallel/context_keys.h"

namespace nought::context_spans_test {
namespace {

using test::ContextCase;
using Pairs = std::set<std::pair<int32_t, int32_t>>;  // of a query and a key, as indices into [rows * length]

ContextTokens over(int ranks, int rank, const ContextCase& of) {
  ContextTokens tokens{.rows = of.rows, .length = of.length};
  tokens.ranks.ranks = ranks, tokens.ranks.rank = rank;
  return tokens;
}

/// The pairs that calls of attention with these spans compute. Expects that the queries are all of the rank's, in
/// order.
Pairs pairs_of(const ContextCase& of, const std::vector<AttentionSpan>& spans, const std::vector<int32_t>& queries,
               const std::vector<int32_t>& keys) {
  const AttentionShape shape{.causal = of.causal, .window = of.window};
  Pairs pairs;
  int64_t next = 0;
  for (const AttentionSpan& span : spans) {
    EXPECT_EQ(span.q_begin, next) << of.str();
    next += span.q_length;
    for (int64_t i = 0; i < span.q_length; ++i) {
      const Interval seen = visible_keys(shape, span, i);
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        const auto pair =
            pairs.emplace(queries[static_cast<size_t>(span.q_begin + i)], keys[static_cast<size_t>(span.k_begin + j)]);
        EXPECT_TRUE(pair.second) << "computed twice: " << of.str();
      }
    }
  }
  EXPECT_EQ(next, std::ssize(queries)) << of.str();
  return pairs;
}

/// The mask, token by token.
Pairs visible_pairs(const ContextCase& of, const std::vector<int32_t>& queries, const std::vector<int32_t>& keys) {
  std::vector<int64_t> document(static_cast<size_t>(of.rows * of.length));
  for (size_t token = 0; token < document.size(); ++token) {
    document[token] = static_cast<int64_t>(token) / of.length;
    for (const AttentionSpan& span : of.documents)
      if (span.q_begin <= static_cast<int64_t>(token)) document[token] = span.q_begin;
  }
  Pairs pairs;
  for (const int32_t query : queries)
    for (const int32_t key : keys)
      if (document[static_cast<size_t>(query)] == document[static_cast<size_t>(key)] && (!of.causal || key <= query) &&
          (of.window == 0 || (key > query - of.window && (of.causal || key < query + of.window))))
        pairs.emplace(query, key);
  return pairs;
}

/// The tokens of a rank that lie in its first or in its second chunk of each row.
std::vector<int32_t> in_chunk(const ContextTokens& tokens, int rank, int half) {
  const Interval chunk = tokens.held_by(rank)[static_cast<size_t>(half)];
  std::vector<int32_t> held = tokens.indices(rank);
  std::erase_if(held, [&](int32_t token) {
    const int64_t position = token % tokens.length;
    return position < chunk.begin || position >= chunk.end;
  });
  return held;
}

std::vector<ContextCase> cases() {
  std::vector<ContextCase> all{{.rows = 2, .length = 16}, {.rows = 1, .length = 37, .window = 5}};
  for (uint64_t seed = 1; seed <= 40; ++seed) all.push_back(test::random_case(seed, DType::f64));
  return all;
}

TEST(ContextSpans, calls_on_chunks_compute_the_visible_pairs_of_the_chunk) {
  for (const ContextCase& of : cases())
    for (const int ranks : {1, 2, 3, 4})
      for (int rank = 0; rank < ranks; ++rank) {
        const ContextTokens tokens = over(ranks, rank, of);
        const ContextSpans spans(tokens, of.options());
        for (int from = 0; from < ranks; ++from)
          for (const int half : {0, 1})
            EXPECT_EQ(pairs_of(of, spans.on_chunks(rank, from, half), tokens.indices(rank), tokens.indices(from)),
                      visible_pairs(of, tokens.indices(rank), in_chunk(tokens, from, half)))
                << of.str();
      }
}

TEST(ContextSpans, calls_on_all_tokens_compute_all_visible_pairs) {
  for (const ContextCase& of : cases()) {
    const std::vector<int32_t> all = test::all_tokens(of);
    for (const int ranks : {1, 2, 3, 4})
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int32_t> queries = over(ranks, rank, of).indices(rank);
        EXPECT_EQ(pairs_of(of, ContextSpans(over(ranks, rank, of), of.options()).on_all(rank), queries, all),
                  visible_pairs(of, queries, all))
            << of.str();
      }
  }
}

/// No key that nobody sees is read: spans end where the mask does.
TEST(ContextSpans, spans_have_no_keys_that_none_of_their_queries_sees) {
  for (const ContextCase& of : cases())
    for (int rank = 0; rank < 4; ++rank) {
      const AttentionShape shape{.causal = of.causal, .window = of.window};
      for (const AttentionSpan& span : ContextSpans(over(4, rank, of), of.options()).on_all(rank)) {
        if (span.k_length == 0) continue;
        EXPECT_EQ(visible_keys(shape, span, 0).begin, 0);
        EXPECT_EQ(visible_keys(shape, span, span.q_length - 1).end, span.k_length);
      }
    }
}

TEST(ContextSpans, keys_go_as_far_as_the_last_rank_that_sees_one) {
  for (const ContextCase& of : cases())
    for (int from = 0; from < 4; ++from) {
      const ContextTokens tokens = over(4, 0, of);
      const ContextSpans spans(tokens, of.options());
      int last = 0;
      for (int hop = 1; hop < 4; ++hop) {
        const int rank = (from + hop) % 4;
        const bool sees = !visible_pairs(of, tokens.indices(rank), tokens.indices(from)).empty();
        EXPECT_EQ(spans.meet(rank, from), sees);
        if (sees) last = hop;
      }
      EXPECT_EQ(spans.hops(from), last) << of.str();
    }
}

TEST(ContextSpans, ranks_have_as_much_to_compute_under_a_causal_mask) {
  const ContextCase of{.rows = 1, .length = 64};
  const std::vector<int32_t> all = test::all_tokens(of);
  for (int rank = 0; rank < 4; ++rank) {
    const ContextTokens tokens = over(4, rank, of);
    EXPECT_EQ(std::ssize(pairs_of(of, ContextSpans(tokens, of.options()).on_all(rank), tokens.indices(rank), all)),
              65 * 64 / 2 / 4);
  }
}

/// Results and the logarithms of sums of attention of these queries.
std::pair<Tensor, Tensor> attend(const Context& context, const AttentionShape& shape, const PackedHeads& heads,
                                 const Tensor& queries, const Tensor& keys) {
  std::pair<Tensor, Tensor> made{context.empty({queries.rows(), heads.out_width()}, DType::f64),
                                 context.empty({heads.num_heads, queries.rows()}, DType::f64)};
  context.run(Attention{.shape = shape,
                        .q = heads.q(queries),
                        .k = heads.k(keys),
                        .v = heads.v(keys),
                        .out = made.first,
                        .lse = made.second});
  return made;
}

/// Merged piece by piece, as a ring computes them.
std::pair<Tensor, Tensor> attend_by_pieces(const Context& context, const ContextCase& of, const ContextTokens& tokens) {
  const int rank = tokens.ranks.rank, ranks = tokens.ranks.ranks;
  const ContextSpans spans(tokens, of.options());
  const auto rows = [&](int holder) {
    return test::random_rows(context, tokens.indices(holder), of.heads.width(), DType::f64, of.seed);
  };
  const auto piece_of = [&](int from, int half) {
    const AttentionShape shape = PackedKeys(of.heads).shape(of.options(), spans.on_chunks(rank, from, half));
    return std::pair{shape, attend(context, shape, of.heads, rows(rank), rows(from))};
  };
  const auto merged = piece_of(rank, 0).second;
  for (int step = 0; step < ranks; ++step)
    for (const int half : {0, 1}) {
      if (step == 0 && half == 0) continue;
      const auto [shape, piece] = piece_of((rank - step + ranks) % ranks, half);
      context.run(MergeAttention{.shape = shape,
                                 .piece_out = piece.first,
                                 .piece_lse = piece.second,
                                 .out = merged.first,
                                 .lse = merged.second});
    }
  return merged;
}

TEST(ContextSpans, merged_pieces_give_the_results_and_the_lse_of_one_call) {
  const Context context = Context::cpu();
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    const ContextCase of = test::random_case(seed, DType::f64);
    for (const int ranks : {2, 3})
      for (int rank = 0; rank < ranks; ++rank) {
        const ContextTokens tokens = over(ranks, rank, of);
        const auto rows = [&](const std::vector<int32_t>& held) {
          return test::random_rows(context, held, of.heads.width(), DType::f64, of.seed);
        };
        const auto whole =
            attend(context, PackedKeys(of.heads).shape(of.options(), ContextSpans(tokens, of.options()).on_all(rank)),
                   of.heads, rows(tokens.indices(rank)), rows(test::all_tokens(of)));
        const auto merged = attend_by_pieces(context, of, tokens);
        for (int64_t i = 0; i < whole.first.numel(); ++i)
          ASSERT_NEAR(merged.first.data<double>()[i], whole.first.data<double>()[i], 1e-13) << of.str();
        for (int64_t i = 0; i < whole.second.numel(); ++i)
          ASSERT_NEAR(merged.second.data<double>()[i], whole.second.data<double>()[i], 1e-13) << of.str();
      }
  }
}

TEST(ContextSpans, documents_that_are_not_all_tokens_in_order_are_refused) {
  ContextCase of{.rows = 2, .length = 8};
  const auto make = [&](std::vector<AttentionSpan> documents) {
    of.documents = std::move(documents);
    return ContextSpans(over(2, 0, of), of.options());
  };
  EXPECT_NO_THROW(make({{0, 3, 0, 3}, {3, 5, 3, 5}, {8, 8, 8, 8}}));
  EXPECT_THROW(make({{0, 8, 0, 8}}), ShapeError) << "a row is missing";
  EXPECT_THROW(make({{0, 16, 0, 16}}), ShapeError) << "it crosses rows";
  EXPECT_THROW(make({{0, 3, 0, 3}, {4, 4, 4, 4}, {8, 8, 8, 8}}), ShapeError) << "a gap";
  EXPECT_THROW(make({{0, 8, 0, 8}, {8, 8, 0, 8}}), ShapeError) << "keys of another row";
}

}  // namespace
}  // namespace nought::context_spans_test
