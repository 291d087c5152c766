// Rows travel to the ranks that hold their experts and back: what comes out is what one rank computes with all experts.
#include "nought/autograd/token_dispatch.h"

#include <numeric>

#include "support/gradient_check.h"
#include "support/size.h"
#include <gmock/gmock.h>

#include "nought/comm/thread.h"

namespace nought::token_dispatch_test {
namespace {

using test::LocalStore;
using test::random;

constexpr int64_t kHidden = 20, kWidth = 12, kExperts = 8;

/// What the tokens of every rank choose.
struct Routes {
  std::string name;
  int64_t top_k = 2;
  std::function<int64_t(int rank)> tokens = [](int) { return 9; };
  std::function<int64_t(int rank, int64_t token, int64_t slot)> expert;
  int64_t capacity = 0;

  ExpertRows of(const Context& context, int rank) const {
    std::vector<int32_t> chosen;
    for (int64_t t = 0; t < tokens(rank); ++t)
      for (int64_t s = 0; s < top_k; ++s) chosen.push_back(static_cast<int32_t>(expert(rank, t, s)));
    return group_by_expert(context, context.upload<int32_t>({tokens(rank), top_k}, chosen), kExperts, capacity);
  }
};

int64_t mixed(int rank, int64_t token, int64_t slot) {
  return (5 * rank + 3 * token + slot * (1 + token % 3)) % kExperts;
}

std::vector<Routes> all_routes() {
  return {{.name = "mixed", .expert = mixed},
          {.name = "all to one expert", .top_k = 1, .expert = [](int, int64_t, int64_t) { return 5; }},
          {.name = "expert 3 is idle",
           .expert =
               [](int rank, int64_t t, int64_t s) {
                 const int64_t e = mixed(rank, t, s) % 7;
                 return e < 3 ? e : e + 1;
               }},
          {.name = "all experts but those of the last are idle",
           .expert = [](int, int64_t t, int64_t s) { return kExperts - 1 - (t + s) % 2; }},
          {.name = "rank 0 has no token", .tokens = [](int rank) { return 4 * rank; }, .expert = mixed},
          {.name = "no rank has a token", .tokens = [](int) { return 0; }, .expert = mixed},
          {.name = "one token", .tokens = [](int rank) { return rank == 1 ? 1 : 0; }, .expert = mixed},
          {.name = "every expert for every token",
           .top_k = kExperts,
           .expert = [](int, int64_t t, int64_t s) { return (t + s) % kExperts; }},
          {.name = "the capacity is exactly hit",
           .top_k = 1,
           .tokens = [](int) { return 2 * kExperts; },
           .expert = [](int rank, int64_t t, int64_t) { return (t + rank) % kExperts; },
           .capacity = 2},
          {.name = "the capacity drops choices",
           .tokens = [](int rank) { return 20 + rank; },
           .expert = mixed,
           .capacity = 3}};
}

/// Calls body(context, ranks, routes) on 2 and 4 ranks for all routes.
template <class Body>
void on_ranks(Context (*make)(), const Body& body) {
  for (const int size : {2, 4})
    for (const Routes& routes : all_routes()) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", size, routes.name));
      std::vector<Context> contexts;
      for (int rank = 0; rank < size; ++rank) contexts.push_back(make());
      run_ranks(contexts, [&](Communicator& ranks, const Context& context) { body(context, ranks, routes); });
    }
}

Tensor in_dtype(const Context& context, const Tensor& x, DType dtype) {
  const Tensor y = context.empty(x.shape(), dtype);
  context.run(Cast{.x = x, .y = y});
  return y;
}

TEST(TokenDispatch, unpermuting_what_was_permuted_is_the_identity) {
  on_ranks(Context::cpu, [](const Context& context, Communicator& ranks, const Routes& routes) {
    const ExpertRows rows = routes.of(context, ranks.rank());
    const TokenDispatch dispatch(context, rows, ranks);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x =
          in_dtype(context, random(context, {routes.tokens(ranks.rank()), kHidden}, 10 + ranks.rank()), dtype);
      const Tensor y = context.empty(x.shape(), dtype);
      dispatch.sum_to_tokens(context, dispatch.rows_of_tokens(context, x), {.into = y});
      const std::vector<float> before = x.to_vector<float>(), after = y.to_vector<float>();
      for (int64_t t = 0; t < x.dim(0); ++t) {
        const int32_t* row = rows.row.data<int32_t>() + t * routes.top_k;
        const auto kept = static_cast<float>(std::count_if(row, row + routes.top_k, [](int32_t r) { return r >= 0; }));
        if (dtype == DType::bf16 && kept > 2) continue;  // the sum is rounded
        for (int64_t j = t * kHidden; j < (t + 1) * kHidden; ++j) {
          const auto at = static_cast<size_t>(j);
          if (kept == 1 || kept == 2 || kept == 0) {
            EXPECT_EQ(after[at], kept * before[at]);
          } else {
            EXPECT_NEAR(after[at], kept * before[at], 1e-5);
          }
        }
      }
    }
    // Each choice gets its own value back, and a dropped one nothing.
    const int64_t choices = rows.row.numel();
    const Tensor values = context.empty({choices / routes.top_k, routes.top_k}, DType::f32);
    std::iota(values.data<float>(), values.data<float>() + choices, 1.0F + 1000 * static_cast<float>(ranks.rank()));
    const Tensor back = context.empty(values.shape(), DType::f32);
    dispatch.give_to_choices(context, dispatch.rows_of_choices(context, values), {.into = back});
    for (int64_t i = 0; i < choices; ++i)
      EXPECT_EQ(back.data<float>()[i], rows.row.data<int32_t>()[i] < 0 ? 0 : values.data<float>()[i]);
  });
}

TEST(TokenDispatch, an_expert_gets_its_rows_by_rank_then_by_their_order_there) {
  on_ranks(Context::cpu, [](const Context& context, Communicator& ranks, const Routes& routes) {
    const auto numbered = [&](int rank) {  // each choice of each rank has a number of its own
      const Tensor values = context.empty({routes.tokens(rank), routes.top_k}, DType::f32);
      std::iota(values.data<float>(), values.data<float>() + values.numel(), 1.0F + 1000 * static_cast<float>(rank));
      return values;
    };
    const TokenDispatch dispatch(context, routes.of(context, ranks.rank()), ranks);
    const std::vector<float> got = dispatch.rows_of_choices(context, numbered(ranks.rank())).to_vector<float>();
    const auto held = kExperts / ranks.size();
    ASSERT_EQ(std::ssize(dispatch.blocks()), held);
    ASSERT_EQ(std::ssize(got), dispatch.rows());
    for (int64_t e = 0; e < held; ++e) {
      std::vector<float> expected;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const ExpertRows rows = routes.of(context, rank);
        const TokenDispatch alone(rows);
        const std::vector<float> all = alone.rows_of_choices(context, numbered(rank)).to_vector<float>();
        const Interval block = rows.blocks[static_cast<size_t>(ranks.rank() * held + e)];
        std::copy_if(all.begin() + block.begin, all.begin() + block.end, std::back_inserter(expected),
                     [](float value) { return value != 0; });
      }
      const auto [begin, end] = dispatch.blocks()[static_cast<size_t>(e)];
      expected.resize(static_cast<size_t>(end - begin));  // padding is 0
      EXPECT_EQ(std::vector<float>(got.begin() + begin, got.begin() + end), expected) << "expert " << e;
    }
  });
}

/// Rows of as many bytes, and a scale each.
TEST(TokenDispatch, rows_that_travel_as_codes_come_within_half_a_step_to_the_same_places) {
  on_ranks(Context::cpu, [](const Context& context, Communicator& ranks, const Routes& routes) {
    const ExpertRows rows = routes.of(context, ranks.rank());
    const TokenDispatch plain(context, rows, ranks), quantized(context, rows, ranks, /*codes=*/true);
    const Tensor x = random(context, {routes.tokens(ranks.rank()), kHidden}, 10 + ranks.rank());
    const Tensor narrow = in_dtype(context, x, DType::f32);
    const auto sent = [&] { return ranks.traffic()[Collective::all_to_all_v].bytes; };
    const int64_t before = sent();
    const Tensor expected = plain.rows_of_tokens(context, narrow);
    const int64_t as_values = sent() - before;
    const Tensor got = quantized.rows_of_tokens(context, narrow);
    EXPECT_EQ((sent() - before - as_values) * kHidden * 4, as_values * (kHidden + 4));
    ASSERT_EQ(got.shape(), expected.shape());
    for (int64_t row = 0; row < got.dim(0); ++row) {
      const float *a = got.data<float>() + row * kHidden, *b = expected.data<float>() + row * kHidden;
      float most = 0;
      for (int64_t j = 0; j < kHidden; ++j) most = std::max(most, std::abs(b[j]));
      for (int64_t j = 0; j < kHidden; ++j) ASSERT_LE(std::abs(a[j] - b[j]), most / 128 * 1.00001F);
    }
  });
}

TEST(TokenDispatch, the_way_back_is_adjoint_to_the_way_there) {
  on_ranks(Context::reference, [](const Context& context, Communicator& ranks, const Routes& routes) {
    const int rank = ranks.rank();
    const TokenDispatch dispatch(context, routes.of(context, rank), ranks);
    const Tensor x = random(context, {routes.tokens(rank), kHidden}, 1 + rank);
    const Tensor y = random(context, {dispatch.rows(), kHidden}, 11 + rank);
    const auto dot = [](const Tensor& a, const Tensor& b) {
      return std::inner_product(a.data<double>(), a.data<double>() + a.numel(), b.data<double>(), 0.0);
    };
    const Tensor back = context.empty(x.shape(), DType::f64);
    dispatch.sum_to_tokens(context, y, {.into = back});
    std::array<double, 2> products{dot(dispatch.rows_of_tokens(context, x), y), dot(x, back)};
    all_reduce_values(ranks, context, products);
    EXPECT_NEAR(products[0], products[1], 1e-10);
  });
}

/// Experts of one layer, from `begin` on; values of an expert do not depend on who has it.
struct Layer {
  Layer(const Context& context, Interval held, bool fused, DType dtype) {
    const int64_t count = held.size();
    const auto add = [&](const char* name, Shape shape) { return unit.add(name, shape, Init::zeros()); };
    experts.out_in = !fused;
    experts.gate_up = add("gate_up", fused ? Shape{count, kHidden, 2 * kWidth} : Shape{count, 2 * kWidth, kHidden});
    experts.down = add("down", fused ? Shape{count, kWidth, kHidden} : Shape{count, kHidden, kWidth});
    if (fused) {
      experts.gate_up_bias = add("gate_up_bias", {count, 2 * kWidth});
      experts.down_bias = add("down_bias", {count, kHidden});
      activation = {.clamped = true, .limit = 0.4};
    }
    store.emplace(context, unit, dtype);
    for (size_t i = 0; i < unit.parameters().size(); ++i) {
      const Tensor values = store->values_of(unit, unit.parameters()[i]);
      const int64_t each = values.numel() / count;
      const Tensor all = random(context, {kExperts, each}, 100 + i);
      context.run(Cast{.x = all.slice(held.begin, held.end), .y = values});
    }
  }
  /// By parameter, those of experts one after the other.
  std::vector<Tensor> gradients() const {
    std::vector<Tensor> all;
    for (const Parameter& parameter : unit.parameters()) all.push_back(store->gradient_of(unit, parameter));
    return all;
  }

  Unit unit{"block"};
  ExpertWeights experts;
  ExpertActivation activation;
  std::optional<LocalStore> store;
};

struct Result {
  Tensor y, dx, d_weights;
};
Result run(const Context& context, Layer& layer, const TokenDispatch& dispatch, int64_t tokens, int64_t top_k,
           uint64_t seed, DType dtype) {
  const auto value = [&](Shape shape, uint64_t salt, DType type) {
    return in_dtype(context, random(context, shape, 10 * seed + salt), type);
  };
  Tape tape(context);
  const Var x = tape.input(value({tokens, kHidden}, 1, dtype));
  const Var weights = tape.input(value({tokens, top_k}, 2, statistics_dtype(dtype)));
  const Var y = run_experts(tape, x, weights, dispatch, layer.experts, layer.activation);
  const Result result{y.value, {}, {}};
  tape.backward(y, value({tokens, kHidden}, 3, dtype));
  return {result.y, tape.gradient(x), tape.gradient(weights)};
}

/// To `tolerance` of the largest value.
void expect_near(const Tensor& actual, const Tensor& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  const std::vector<double> a = actual.to_vector<double>(), b = expected.to_vector<double>();
  double largest = 0;
  for (const double value : b) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << what << " " << i;
}

/// Values and gradients of experts on several ranks are those of one rank that has all; the experts' gradients are the
/// sums over the ranks' tokens.
void expect_those_of_one_rank(const Context& context, Communicator& ranks, const Routes& routes, bool fused,
                              DType dtype, double tolerance) {
  const int rank = ranks.rank();
  const int64_t held = kExperts / ranks.size(), tokens = routes.tokens(rank);
  const ExpertRows rows = routes.of(context, rank);
  Layer part(context, {rank * held, (rank + 1) * held}, fused, dtype), whole(context, {0, kExperts}, fused, dtype);
  const TokenDispatch dispatch(context, rows, ranks);
  const auto seed = static_cast<uint64_t>(1 + rank);
  const Result ours = run(context, part, dispatch, tokens, routes.top_k, seed, dtype);
  const Result alone = run(context, whole, rows, tokens, routes.top_k, seed, dtype);
  expect_near(ours.y, alone.y, tolerance, "y");
  expect_near(ours.dx, alone.dx, tolerance, "dx");
  expect_near(ours.d_weights, alone.d_weights, tolerance, "d_weights");
  const std::vector<Tensor> mine = part.gradients(), all = whole.gradients();
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t each = all[i].numel() / kExperts;
    ranks.all_reduce(all[i]).wait();
    expect_near(mine[i], all[i].flat(rank * held * each, (rank + 1) * held * each), tolerance,
                part.unit.parameters()[i].name.c_str());
  }
}

NOUGHT_SIZE(medium);
TEST(TokenDispatch, experts_on_several_ranks_compute_what_one_rank_computes) {
  on_ranks(Context::reference, [](const Context& context, Communicator& ranks, const Routes& routes) {
    for (const bool fused : {false, true}) expect_those_of_one_rank(context, ranks, routes, fused, DType::f64, 1e-13);
  });
  on_ranks(Context::cpu, [](const Context& context, Communicator& ranks, const Routes& routes) {
    for (const bool fused : {false, true}) expect_those_of_one_rank(context, ranks, routes, fused, DType::f32, 3e-6);
  });
}

/// Ranks that generate the same text must draw the same tokens, though their rows lie at different places of a block.
TEST(TokenDispatch, ranks_with_the_same_tokens_get_the_same_bits) {
  run_ranks(4, [](Communicator& ranks, const Context& context) {
    const int64_t held = kExperts / ranks.size(), begin = ranks.rank() * held;
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t tokens : {1, 2, 3, 5, 8, 13, 40}) {
        const Routes routes{.name = "",
                            .tokens = [=](int) { return tokens; },
                            .expert = [](int, int64_t t, int64_t s) { return mixed(0, t, s); }};
        Layer part(context, {begin, begin + held}, false, dtype);
        const TokenDispatch dispatch(context, routes.of(context, ranks.rank()), ranks);
        const Tensor y = run(context, part, dispatch, tokens, routes.top_k, 1, dtype).y;
        const Tensor all = context.empty({ranks.size(), y.numel()}, dtype);
        ranks.all_gather(y, all).wait();
        for (int64_t rank = 1; rank < ranks.size(); ++rank)
          EXPECT_EQ(all.slice(rank, rank + 1).to_vector<float>(), all.slice(0, 1).to_vector<float>())
              << name_of(dtype) << ", " << tokens << " tokens";
      }
  });
}

TEST(TokenDispatch, what_is_sent_is_the_formula) {
  run_ranks(4, [](Communicator& ranks, const Context& context) {
    for (const Routes& routes : all_routes()) {
      const int rank = ranks.rank();
      const int64_t held = kExperts / ranks.size(), tokens = routes.tokens(rank);
      const ExpertRows rows = routes.of(context, rank);
      int64_t leave = 0, come = 0;  // rows for experts of other ranks, and of other ranks for these
      for (int peer = 0; peer < ranks.size(); ++peer) {
        const ExpertRows theirs = routes.of(context, peer);
        for (int64_t choice = 0; choice < theirs.row.numel(); ++choice) {
          const int64_t expert = routes.expert(peer, choice / routes.top_k, choice % routes.top_k);
          if (theirs.row.data<int32_t>()[choice] < 0) continue;
          leave += peer == rank && expert / held != rank;
          come += peer != rank && expert / held == rank;
        }
      }
      Layer part(context, {rank * held, (rank + 1) * held}, false, DType::f32);
      const Traffic before = ranks.traffic();
      run(context, part, TokenDispatch(context, rows, ranks), tokens, routes.top_k, 1, DType::f32);
      const Traffic after = ranks.traffic();
      const auto sent = [&](Collective::Kind collective) {
        return after[collective].elements - before[collective].elements;
      };
      // There and back in both passes; beside the gradients of results travel the weights, and theirs come back.
      EXPECT_EQ(sent(Collective::all_to_all_v), (2 * kHidden + 1) * (leave + come)) << routes.name;
      EXPECT_EQ(sent(Collective::all_gather), (ranks.size() - 1) * kExperts) << "how many choose each expert";
      EXPECT_EQ(after.total_elements() - before.total_elements(),
                sent(Collective::all_to_all_v) + sent(Collective::all_gather));
      if (routes.top_k == kExperts) {
        EXPECT_EQ(leave, tokens * routes.top_k * (ranks.size() - 1) / ranks.size()) << "balanced";
        EXPECT_EQ(come, leave);
      }
    }
  });
}

TEST(TokenDispatch, experts_that_do_not_divide_are_refused) {
  run_ranks(3, [](Communicator& ranks, const Context& context) {
    const ExpertRows rows = all_routes().front().of(context, ranks.rank());
    EXPECT_THROW(TokenDispatch(context, rows, ranks), ShapeError);
  });
}

/// So every step of a run asks for the same blocks of memory, and none is found anew.
TEST(TokenDispatch, rows_take_as_much_memory_whatever_is_chosen) {
  const Context context = Context::cpu();
  const MemoryLedger& ledger = context.memory->ledger();
  std::vector<int64_t> rows, bytes;
  for (const int64_t shift : {0, 1, 7}) {
    const Routes routes{
        .name = "shifted",
        .tokens = [](int) { return 60; },
        .expert = [=](int, int64_t t, int64_t slot) { return (t < 8 * shift ? slot : t + slot) % kExperts; }};
    const TokenDispatch dispatch = routes.of(context, 0);
    rows.push_back(dispatch.rows());
    const int64_t before = ledger.current_total();
    const Tensor made = dispatch.make_rows(context, kHidden, DType::f32);
    const Tensor x = dispatch.rows_of_tokens(context, context.zeros({60, kHidden}, DType::f32));
    EXPECT_EQ(made.shape(), (Shape{dispatch.rows(), kHidden}));
    EXPECT_EQ(x.shape(), made.shape());
    bytes.push_back(ledger.current_total() - before);
  }
  EXPECT_NE(rows[0], rows[1]) << "blocks are padded, so the choice decides their number";
  EXPECT_EQ(bytes, std::vector<int64_t>(3, bytes[0]));
}

}  // namespace
}  // namespace nought::token_dispatch_test
