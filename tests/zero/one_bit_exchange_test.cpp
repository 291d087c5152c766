// The mean of signs: all ranks get the same bits, nothing is lost over time, and what travels is what was promised.
#include "nought/zero/one_bit_exchange.h"

#include <cmath>

#include <gtest/gtest.h>

#include "nought/comm/mesh.h"
#include "nought/comm/thread.h"
#include "nought/tensor/random.h"

namespace nought::one_bit_exchange_test {
namespace {

/// Pieces of odd sizes with room between them, cut at the borders of the shards.
std::vector<Interval> pieces_of(const Partition& partition) {
  std::vector<Interval> pieces;
  for (const Interval& parameter : {Interval{0, 37}, Interval{40, 101}, Interval{101, 102}, Interval{103, 230}})
    for (int rank = 0; rank < partition.ranks(); ++rank)
      if (const Interval piece = intersect(parameter, partition.owned(rank)); !piece.empty()) pieces.push_back(piece);
  return pieces;
}

float value_at(int rank, int round, int64_t i) {
  return static_cast<float>(normal_at(static_cast<uint64_t>(100 * rank + round), static_cast<uint64_t>(i)));
}

/// What all ranks have seen after some rounds.
struct Seen {
  std::vector<std::vector<float>> results;   // of the last round, by rank
  std::vector<double> sent, put_in, errors;  // sums over rounds, and what was left out in the end
};

Seen run_rounds(int count, int rounds) {
  Seen seen;
  seen.results.resize(static_cast<size_t>(count));
  run_ranks(count, [&](Communicator& ranks, const Context& context) {
    const Partition partition(230, count);
    OneBitExchange exchange(context, ranks, partition, pieces_of(partition));
    const int64_t n = partition.padded();
    std::vector<double> sent(static_cast<size_t>(n)), put_in(sent), errors(sent);
    for (int round = 0; round < rounds; ++round) {
      const Tensor values = context.zeros({n}, DType::f32);
      for (const Interval& piece : pieces_of(partition))
        for (int64_t i = piece.begin; i < piece.end; ++i) values.data<float>()[i] = value_at(ranks.rank(), round, i);
      for (int64_t i = 0; i < n; ++i) put_in[static_cast<size_t>(i)] += values.data<float>()[i];
      exchange.mean(values);
      for (int64_t i = 0; i < n; ++i) sent[static_cast<size_t>(i)] += values.data<float>()[i];
      seen.results[static_cast<size_t>(ranks.rank())] = values.to_vector<float>();
    }
    for (int64_t i = 0; i < n; ++i) {
      errors[static_cast<size_t>(i)] = exchange.worker_error().data<float>()[i] / static_cast<double>(count);
      put_in[static_cast<size_t>(i)] /= count;
    }
    const Interval own = partition.owned(ranks.rank());
    for (int64_t i = own.begin; i < own.end; ++i)
      errors[static_cast<size_t>(i)] += exchange.server_error().data<float>()[i - own.begin];
    all_reduce_values(ranks, context, put_in);
    all_reduce_values(ranks, context, errors);
    if (ranks.rank() == 0) seen.sent = sent, seen.put_in = put_in, seen.errors = errors;
  });
  return seen;
}

TEST(OneBitExchange, all_ranks_hold_the_same_bits) {
  for (const int count : {1, 2, 3, 4}) {
    const Seen seen = run_rounds(count, 3);
    for (const auto& result : seen.results) EXPECT_EQ(result, seen.results.front()) << count << " ranks";
    EXPECT_NE(seen.results.front()[0], 0);
    EXPECT_EQ(seen.results.front()[38], 0) << "of no piece";
  }
}

TEST(OneBitExchange, what_was_sent_and_what_is_left_add_up_to_what_was_put_in) {
  for (const int count : {1, 2, 3, 4})
    for (const int rounds : {1, 2, 20}) {
      const Seen seen = run_rounds(count, rounds);
      for (size_t i = 0; i < seen.sent.size(); ++i)
        ASSERT_NEAR(seen.sent[i] + seen.errors[i], seen.put_in[i], 1e-4)
            << "element " << i << " of " << count << " ranks after " << rounds << " rounds";
    }
}

TEST(OneBitExchange, sends_an_eighth_of_a_byte_for_an_element_and_a_scale_for_a_piece) {
  for (const int count : {1, 2, 3, 4})
    run_ranks(count, [&](Communicator& ranks, const Context& context) {
      const Partition partition(230, count);
      OneBitExchange exchange(context, ranks, partition, pieces_of(partition));
      int64_t most = 0;
      for (int rank = 0; rank < count; ++rank) {
        int64_t bytes = 0;
        for (const Interval& piece : pieces_of(partition))
          if (partition.owned(rank).begin <= piece.begin && piece.end <= partition.owned(rank).end)
            bytes += 4 + ceil_div(piece.size(), 8);
        most = std::max(most, round_up(bytes, 4));
      }
      const Traffic before = ranks.traffic();
      exchange.mean(context.zeros({partition.padded()}, DType::f32));
      const Traffic after = ranks.traffic();
      for (const Collective::Kind each : {Collective::all_to_all, Collective::all_gather})
        EXPECT_EQ(after[each].bytes - before[each].bytes, (count - 1) * most) << name_of(each);
      EXPECT_EQ(after.total_bytes() - before.total_bytes(), 2 * (count - 1) * most);
    });
}

TEST(OneBitExchange, a_piece_over_a_border_of_shards_is_refused) {
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    EXPECT_THROW(OneBitExchange(context, ranks, Partition(230, 2), {{0, 200}}), Error);
  });
}

}  // namespace
}  // namespace nought::one_bit_exchange_test
