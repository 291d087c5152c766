// Ranks that exchange tokens for heads: the exchanges are conjugate, and attention between them is that of one rank.
#include "nought/parallel/context_heads.h"

#include <cmath>

#include "support/context_checks.h"
#include "support/context_traffic.h"
#include "support/guarded_context.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::context_heads_test {
namespace {

using test::ContextCase;
using test::heads_gradients_traffic;
using test::heads_traffic;

constexpr ContextMethod kHeads = ContextMethod::heads;

/// Layouts that so many ranks can share out: key/value heads that divide, that are shared, and that lie among the
/// queries.
std::vector<PackedHeads> layouts(int64_t ranks) {
  return {{.num_heads = 2 * ranks, .num_kv_heads = ranks, .head_dim = 6},
          {.num_heads = 4 * ranks, .num_kv_heads = 2 * ranks, .head_dim = 4, .v_head_dim = 7},
          {.num_heads = 2 * ranks, .num_kv_heads = 1, .head_dim = 8},
          {.num_heads = ranks, .num_kv_heads = ranks % 2 == 0 ? 2 : 1, .head_dim = 5, .v_head_dim = 3},
          {.num_heads = 2 * ranks, .num_kv_heads = 2 * ranks, .head_dim = 4, .interleaved = true}};
}

std::vector<ContextCase> random_cases(int ranks, uint64_t first, DType dtype) {
  std::vector<ContextCase> cases;
  for (const PackedHeads& heads : layouts(ranks)) {
    for (int i = 0; i < 4; ++i) {
      cases.push_back(test::random_case(first++, dtype));
      cases.back().heads = heads;
    }
  }
  return cases;
}

void expect_agreement(int ranks, const std::vector<ContextCase>& cases) {
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    for (const ContextCase& each : cases) test::check_context_attention(world, context, each, kHeads);
  });
}

TEST(ContextHeads, each_rank_gets_the_heads_that_its_queries_read) {
  const auto each = [](int64_t heads, int64_t kv_heads, int ranks) {
    const PackedHeads own = heads_of_each({.num_heads = heads, .num_kv_heads = kv_heads, .head_dim = 4}, ranks);
    return std::pair(own.num_heads, own.num_kv_heads);
  };
  EXPECT_EQ(each(8, 8, 4), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(each(8, 4, 2), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(each(8, 2, 4), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_EQ(each(8, 1, 8), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_THROW(each(6, 6, 4), ShapeError);
  EXPECT_THROW(each(12, 6, 4), ShapeError);
}

NOUGHT_SIZE(medium);
TEST(ContextHeads, attention_over_random_documents_agrees_with_one_rank) {
  for (const int ranks : {2, 3, 4})
    expect_agreement(ranks, random_cases(ranks, 100 * static_cast<uint64_t>(ranks), DType::f64));
}

NOUGHT_SIZE(medium);
TEST(ContextHeads, f32_and_bf16_agree_with_one_rank) {
  for (const DType dtype : {DType::f32, DType::bf16}) expect_agreement(4, random_cases(4, 1000, dtype));
}

/// On a device that runs everything as late as it can, and where what was never written is NaN.
TEST(ContextHeads, streams_that_run_late_agree_with_one_rank) {
  for (const int ranks : {2, 4}) {
    run_ranks(test::contexts_of(ranks, /*guarded=*/true), [&](Communicator& world, const Context& context) {
      for (ContextCase each : random_cases(ranks, 2000, DType::f32)) {
        each.sinks = false;  // the store of parameters writes on the host
        test::check_context_attention(world, context, each, kHeads);
      }
    });
  }
}

/// Most ranks have no token of such rows, and all have heads.
TEST(ContextHeads, rows_with_fewer_tokens_than_ranks_agree_with_one_rank) {
  for (const int64_t length : {1, 2, 3})
    expect_agreement(4, {{.rows = 2, .length = length, .heads = layouts(4)[2], .sinks = true}});
}

/// The sum over the ranks of the products of two matrices, of which each has some rows.
double dot(Communicator& world, const Context& context, const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  std::vector<double> sum{0};
  for (size_t i = 0; i < x.size(); ++i) sum[0] += x[i] * y[i];
  all_reduce_values(world, context, sum);
  return sum[0];
}

TEST(ContextHeads, both_exchanges_have_their_adjoints_as_gradients) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      for (const PackedHeads& heads : layouts(ranks)) {
        const ContextCase of{.rows = 2, .length = 13, .heads = heads};
        const ContextTokens tokens = test::context_tokens(world, of, kHeads);
        const auto own = tokens.indices(world.rank()), all = test::all_tokens(of);
        const auto expect_adjoint = [&](const Tensor& x, uint64_t seed, const auto& exchange) {
          Tape tape(context);
          const Var in = tape.input(x), out = exchange(tape, in);
          const auto seed_here = seed + static_cast<uint64_t>(world.rank());
          const auto& rows = out.value.rows() == tokens.rows * tokens.length ? all : own;
          const Tensor d = test::random_rows(context, rows, out.value.dim(-1), DType::f64, seed_here);
          const double forward = dot(world, context, out.value, d);
          tape.backward(out, d);
          const double backward = dot(world, context, in.value, tape.gradient(in));
          EXPECT_NEAR(forward, backward, 1e-12 * (1 + std::abs(forward)));
        };
        expect_adjoint(test::random_rows(context, own, heads.width(), DType::f64, 1), 10,
                       [&](Tape& tape, const Var& x) { return tokens_to_heads(tape, x, heads, tokens); });
        const int64_t width = heads_of_each(heads, ranks).out_width();
        const auto seed = static_cast<uint64_t>(20 + world.rank());
        expect_adjoint(test::random_rows(context, all, width, DType::f64, seed), 30,
                       [&](Tape& tape, const Var& x) { return heads_to_tokens(tape, x, tokens); });
      }
    });
  }
}

/// From the ranks' order of tokens to that of the rows, and back.
TEST(ContextHeads, all_tokens_arrive_in_the_order_of_their_rows) {
  run_ranks(3, [](Communicator& world, const Context& context) {
    const PackedHeads heads{.num_heads = 3, .num_kv_heads = 3, .head_dim = 2};
    const ContextCase of{.rows = 2, .length = 17, .heads = heads};
    const ContextTokens tokens = test::context_tokens(world, of, kHeads);
    const auto own = tokens.indices(world.rank()), all = test::all_tokens(of);
    Tape tape(context, /*recording=*/false);
    const Var qkv = Tape::constant(test::random_rows(context, own, heads.width(), DType::f32, 1));
    const std::vector<double> found = tokens_to_heads(tape, qkv, heads, tokens).value.to_vector<double>();
    const std::vector<double> whole = test::random_rows(context, all, heads.width(), DType::f32, 1).to_vector<double>();
    for (size_t token = 0; token < all.size(); ++token)
      for (size_t part = 0; part < 3; ++part)  // q, k and v of this rank's head
        for (size_t i = 0; i < 2; ++i)
          ASSERT_EQ(found[token * 6 + part * 2 + i],
                    whole[token * 18 + part * 6 + static_cast<size_t>(world.rank()) * 2 + i]);

    const Tensor columns = test::random_rows(context, all, 6, DType::f32, 2);  // 2 of each rank
    const Tensor mine = context.empty({tokens.rows * tokens.length, 2}, DType::f32);
    context.run(CopyHeads{.from = {columns, 2 * world.rank(), 6},
                          .to = {mine, 0, 2},
                          .tokens = mine.rows(),
                          .num_heads = 1,
                          .head_dim = 2});
    const Tensor back = heads_to_tokens(tape, Tape::constant(mine), tokens).value;
    EXPECT_EQ(back.to_vector<double>(), test::random_rows(context, own, 6, DType::f32, 2).to_vector<double>());
  });
}

TEST(ContextHeads, the_counters_agree_with_the_formulas_to_the_element) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      for (ContextCase of : random_cases(ranks, 50, DType::f32)) {
        of.sinks = false;
        const ContextTokens tokens = test::context_tokens(world, of, kHeads);
        const Traffic before = world.traffic();
        test::attend_part(context, of, tokens);
        const Traffic after = world.traffic();
        const int64_t expected =
            heads_traffic(tokens, of.heads).all_to_all_v + heads_gradients_traffic(tokens, of.heads).all_to_all_v;
        EXPECT_EQ(after[Collective::all_to_all_v].elements - before[Collective::all_to_all_v].elements, expected);
        EXPECT_EQ(after.total_elements() - before.total_elements(), expected) << of.str();
      }
    });
  }
}

/// Rows and heads that divide: (c-1)/c of the 1/c of all columns that the forward pass moves (arXiv 2309.14509).
TEST(ContextHeads, what_is_sent_shrinks_with_the_number_of_ranks) {
  const PackedHeads heads{.num_heads = 16, .num_kv_heads = 16, .head_dim = 4};
  for (const int ranks : {2, 4, 8}) {
    ContextTokens tokens{.rows = 1, .length = 64};
    tokens.ranks.ranks = ranks, tokens.ranks.method = kHeads;
    const int64_t columns = heads.width() + heads.out_width();
    EXPECT_EQ(heads_traffic(tokens, heads).all_to_all_v, 64 * columns * (ranks - 1) / (ranks * ranks));
    EXPECT_EQ(heads_gradients_traffic(tokens, heads), heads_traffic(tokens, heads));
  }
}

}  // namespace
}  // namespace nought::context_heads_test
