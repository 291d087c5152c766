// Attention over context ranks gives what one rank gives: results and gradients, whatever documents, masks and layouts.
#include "nought/parallel/context_attention.h"

#include <algorithm>

#include "support/context_checks.h"
#include "support/guarded_context.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/kernels/watch.h"

namespace nought::context_attention_test {
namespace {

using test::ContextCase;

struct How {
  ContextMethod method;
  int64_t gathered_heads = 0;
};
const std::vector<How> kMethods{{ContextMethod::ring}, {ContextMethod::gather}, {ContextMethod::gather, 1}};

void expect_agreement(int ranks, const std::vector<ContextCase>& cases) {
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    for (const ContextCase& each : cases)
      for (const How& how : kMethods)
        test::check_context_attention(world, context, each, how.method, how.gathered_heads);
  });
}

std::vector<ContextCase> random_cases(uint64_t first, int count, DType dtype) {
  std::vector<ContextCase> cases;
  for (int i = 0; i < count; ++i) cases.push_back(test::random_case(first + static_cast<uint64_t>(i), dtype));
  return cases;
}

TEST(ContextAttention, whole_rows_agree_with_one_rank) {
  for (const int ranks : {2, 3, 4})
    expect_agreement(ranks, {{.rows = 1, .length = 16}, {.rows = 2, .length = 37}, {.rows = 3, .length = 5}});
}

NOUGHT_SIZE(medium);
TEST(ContextAttention, random_documents_masks_and_layouts_agree_with_one_rank) {
  for (const int ranks : {2, 3, 4})
    expect_agreement(ranks, random_cases(100 * static_cast<uint64_t>(ranks), 25, DType::f64));
}

NOUGHT_SIZE(medium);
TEST(ContextAttention, f32_and_bf16_agree_with_one_rank) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {2, 4})
      expect_agreement(ranks, random_cases(1000 + static_cast<uint64_t>(ranks), 12, dtype));
}

/// On a device that runs everything as late as it can, and where what was never written is NaN.
TEST(ContextAttention, streams_that_run_late_agree_with_one_rank) {
  for (const int ranks : {2, 3}) {
    run_ranks(test::contexts_of(ranks, /*guarded=*/true), [&](Communicator& world, const Context& context) {
      for (ContextCase each : random_cases(2000, 8, DType::f32)) {
        each.sinks = false;  // the store of parameters writes on the host
        for (const How& how : kMethods)
          test::check_context_attention(world, context, each, how.method, how.gathered_heads);
      }
    });
  }
}

/// Most ranks have no token of such rows, and one has all.
TEST(ContextAttention, rows_with_fewer_tokens_than_ranks_agree_with_one_rank) {
  for (const int64_t length : {1, 2, 3}) expect_agreement(4, {{.rows = 2, .length = length, .sinks = true}});
}

/// How many calls of this collective a rank has issued whenever attention runs forward, or backward.
std::vector<int64_t> issued_at(std::string_view operation, Collective::Kind collective, Communicator& world,
                               const Context& context, const ContextCase& of, const How& how) {
  const ContextTokens tokens = test::context_tokens(world, of, how.method, how.gathered_heads);
  const int64_t before = world.traffic()[collective].calls;
  std::vector<int64_t> issued;
  int64_t rows = 0;  // a part of a packed projection comes row by row
  Context watched = context;
  watched.kernels =
      make_watching_kernels(context.kernels, [&](std::string_view ran, std::string_view result, const Tensor&) {
        if (ran != operation || (result != "out" && (result != "dq" || rows++ % tokens.tokens(world.rank()) != 0)))
          return;
        issued.push_back(world.traffic()[collective].calls - before);
      });
  test::attend_part(watched, of, tokens);
  return issued;
}

/// Each of four ranks asks for the next keys, and for the sum of gradients, before it attends to those that it has.
/// Under a causal mask it makes two calls on its own keys and on those of ranks behind it, and one on others.
TEST(ContextAttention, the_next_keys_are_on_their_way_while_attention_runs) {
  const ContextCase of{.rows = 1, .length = 16, .dtype = DType::f32};
  run_ranks(4, [&](Communicator& world, const Context& context) {
    std::vector<int64_t> forward, backward;
    for (int step = 0; step < 4; ++step) {
      const bool from_before = step > 0 && step <= world.rank();
      for (int call = 0; call < (from_before ? 1 : 2); ++call) {
        forward.push_back(std::min(step + 1, 3));
        backward.push_back(3 + std::min(step + 1, 3) + std::max(step - 1, 0));
      }
    }
    EXPECT_EQ(issued_at("Attention", Collective::recv, world, context, of, {ContextMethod::ring}), forward);
    EXPECT_EQ(issued_at("AttentionBackward", Collective::recv, world, context, of, {ContextMethod::ring}), backward);
    EXPECT_EQ(issued_at("Attention", Collective::all_gather, world, context, of, {ContextMethod::gather, 1}),
              (std::vector<int64_t>{2, 2}));
  });
}

/// What a ring needs beside its messages depends on the tokens of a rank, and not on those of the sequence.
TEST(ContextAttention, the_memory_of_a_ring_is_that_of_a_ranks_own_tokens) {
  const auto peaks = [](int ranks, int64_t length) {
    const ContextCase of{.rows = 1, .length = length, .dtype = DType::bf16};
    std::vector<int64_t> peaks(2 * static_cast<size_t>(ranks));
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      test::attend_part(context, of, test::context_tokens(world, of, ContextMethod::ring));
      const auto at = 2 * static_cast<size_t>(world.rank());
      peaks[at] = context.memory->ledger().peak(Category::activations);
      peaks[at + 1] = context.memory->ledger().peak(Category::workspace);
    });
    for (size_t i = 2; i < peaks.size(); ++i) EXPECT_EQ(peaks[i], peaks[i % 2]) << "rank " << i / 2;
    return std::vector(peaks.begin(), peaks.begin() + 2);
  };
  const std::vector<int64_t> of_two = peaks(2, 128);
  EXPECT_GT(of_two[1], 0);
  EXPECT_EQ(peaks(4, 256), of_two);
  EXPECT_EQ(peaks(4, 128)[0] * 2, of_two[0]);
}

/// Every document of one token sees itself alone: nothing is exchanged in the ring.
TEST(ContextAttention, documents_that_no_other_rank_reads_do_not_travel) {
  ContextCase of{.rows = 2, .length = 12};
  for (int64_t token = 0; token < 24; ++token) of.documents.push_back({token, 1, token, 1});
  run_ranks(3, [&](Communicator& world, const Context& context) {
    test::check_context_attention(world, context, of, ContextMethod::ring);
    EXPECT_EQ(world.traffic().total_elements(), 0);
  });
}

TEST(ContextAttention, one_rank_is_plain_attention) {
  const ContextCase of{.rows = 2, .length = 7, .window = 3};
  run_ranks(1, [&](Communicator& world, const Context& context) {
    test::check_context_attention(world, context, of, ContextMethod::ring);
  });
}

TEST(ContextAttention, documents_that_do_not_fill_the_rows_are_refused) {
  for (const std::vector<AttentionSpan>& documents :
       {std::vector<AttentionSpan>{{0, 5, 0, 5}}, std::vector<AttentionSpan>{{0, 16, 0, 16}}}) {
    run_ranks(2, [&](Communicator& world, const Context& context) {
      const ContextCase of{.rows = 2, .length = 8, .documents = documents};
      EXPECT_THROW(test::attend_part(context, of, test::context_tokens(world, of, ContextMethod::ring)), ShapeError);
    });
  }
}

}  // namespace
}  // namespace nought::context_attention_test
