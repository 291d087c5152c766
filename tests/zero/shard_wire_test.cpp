// Gathers and reductions of shards have the values of collectives, within what codes lose, over any hosts; what leaves
// a rank is counted to the byte.
#include "nought/zero/shard_wire.h"

#include <cmath>

#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/tensor/random.h"
#include "nought/zero/wire_options.h"

namespace nought::shard_wire_test {
namespace {

constexpr int64_t kShard = 544;  // a block of codes and a part of one

/// So many hosts of so many ranks; with one host nothing says which ranks share one.
struct Hosts {
  int hosts = 1, ranks = 1;
  int all() const { return hosts * ranks; }
  GridSizes grid() const { return {.shard = all(), .host_ranks = ranks}; }
};
const std::vector<Hosts> kHosts{{1, 2}, {1, 3}, {2, 2}, {3, 2}, {2, 3}};

struct Rank {
  Rank(Communicator& world, const Context& on, const Hosts& hosts)
      : context(on),
        mesh(world, hosts.grid()),
        wire{&mesh.group(Group::parameters), mesh.over_hosts(Group::parameters)} {}
  Tensor values(int64_t numel, uint64_t seed, bool integers, DType dtype = DType::f32) const {
    std::vector<float> x;
    for (int64_t i = 0; i < numel; ++i) {
      const auto at = static_cast<uint64_t>(i);
      x.push_back(integers ? static_cast<float>(philox(seed, at)[0] % 41) - 20
                           : static_cast<float>(normal_at(seed, at)));
    }
    const Tensor wide = context.upload<float>({numel}, x), narrow = context.empty({numel}, dtype);
    context.run(Cast{.x = wide, .y = narrow});
    return narrow;
  }
  /// The gradients of a rank.
  Tensor gradients(int rank, bool integers) const {
    return values(wire.size() * kShard, 100 + static_cast<uint64_t>(rank), integers);
  }
  std::vector<float> reduced(const Tensor& whole, const WireOptions& options, WireErrors* errors = nullptr) const {
    const Tensor sum = context.empty({kShard}, DType::f32);
    ShardReduction reduction(context, wire, options, whole, sum, errors);
    reduction.complete();
    return sum.to_vector<float>();
  }
  std::vector<float> reduce_scattered(const Tensor& whole) const {
    const Tensor sum = context.empty({kShard}, DType::f32);
    wire.all->wait(wire.all->reduce_scatter(whole, sum), *context.stream);
    return sum.to_vector<float>();
  }

  Context context;
  Mesh mesh;
  WireRanks wire;
};

template <class Body>
void on_all_hosts(const Body& body) {
  for (const Hosts& hosts : kHosts) {
    SCOPED_TRACE(fmt::format("{} hosts of {} ranks", hosts.hosts, hosts.ranks));
    run_ranks(hosts.all(),
              [&](Communicator& world, const Context& context) { body(Rank(world, context, hosts), hosts); });
  }
}

TEST(ShardWire, a_reduction_of_values_is_a_reduce_scatter_on_integers) {
  on_all_hosts([](const Rank& rank, const Hosts&) {
    const Tensor whole = rank.gradients(rank.wire.all->rank(), /*integers=*/true);
    const std::vector<float> expected = rank.reduce_scattered(whole);
    for (const int bits : {16, 32})
      EXPECT_EQ(rank.reduced(whole, {.gradient_bits = bits}), expected) << bits << " bits";
  });
}

/// Each hop loses at most a step of each term: the largest magnitude / 2^(bits-1).
TEST(ShardWire, a_reduction_of_codes_stays_within_the_steps_of_its_hops) {
  on_all_hosts([](const Rank& rank, const Hosts& hosts) {
    const Tensor whole = rank.gradients(rank.wire.all->rank(), /*integers=*/false);
    const std::vector<float> expected = rank.reduce_scattered(whole);
    double most = 0;  // of what any rank sends
    for (int from = 0; from < hosts.all(); ++from)
      for (const float x : rank.gradients(from, false).to_vector<float>()) most = std::max(most, std::abs(double{x}));
    for (const int bits : {4, 8}) {
      const std::vector<float> sums = rank.reduced(whole, {.gradient_bits = bits});
      const double step = std::ldexp(most, 1 - bits);
      const double second = hosts.hosts > 1 ? hosts.all() * step * (1 + 2.0 / (1 << bits)) : 0;
      double worst = 0;
      for (size_t i = 0; i < sums.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(sums[i]) - static_cast<double>(expected[i])));
      EXPECT_LE(worst, hosts.all() * step + second);
      EXPECT_GT(worst, 0) << "codes were sent";
    }
  });
}

TEST(ShardWire, a_gather_of_values_is_exact_and_one_of_codes_is_the_same_on_every_rank) {
  on_all_hosts([](const Rank& rank, const Hosts& hosts) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int bits : {0, 8}) {
        const Tensor whole = rank.context.empty({hosts.all() * kShard}, dtype);
        const auto mine = [&](int of) { return rank.values(kShard, 50 + static_cast<uint64_t>(of), false, dtype); };
        ShardGather gather(rank.context, rank.wire, mine(rank.wire.all->rank()), whole, bits);
        EXPECT_TRUE(gather);
        gather.finish(rank.context, whole);
        EXPECT_FALSE(gather);
        const std::vector<float> got = whole.to_vector<float>();
        for (int from = 0; from < hosts.all(); ++from) {
          Tensor expected = mine(from);
          if (bits > 0) {
            const Tensor record = rank.context.empty({wire_record_bytes(kShard, bits)}, DType::u8);
            rank.context.run(EncodeWire{.x = expected, .records = record, .bits = bits});
            rank.context.run(DecodeWire{.records = record, .y = expected, .bits = bits});
          }
          const std::vector<float> want = expected.to_vector<float>();
          ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin() + from * kShard)) << bits << " bits";
        }
      }
  });
}

TEST(ShardWire, what_leaves_a_rank_is_the_records_of_each_hop) {
  for (const Hosts& hosts : {Hosts{3, 2}, Hosts{2, 3}})
    run_ranks(hosts.all(), [&](Communicator& world, const Context& context) {
      const Rank rank(world, context, hosts);
      const auto& [inside, across] = *rank.wire.over_hosts;
      const int64_t record = wire_record_bytes(kShard, 4);
      rank.reduced(rank.gradients(world.rank(), false), {.gradient_bits = 4});
      EXPECT_EQ(inside->traffic()[Collective::all_to_all].bytes, (hosts.ranks - 1) * hosts.hosts * record);
      EXPECT_EQ(across->traffic()[Collective::all_to_all].bytes, (hosts.hosts - 1) * record);
      const Tensor whole = context.empty({hosts.all() * kShard}, DType::f32);
      ShardGather(context, rank.wire, rank.values(kShard, 1, false), whole, 8).finish(context, whole);
      const int64_t quantized = wire_record_bytes(kShard, 8);
      EXPECT_EQ(across->traffic()[Collective::all_gather].bytes, (hosts.hosts - 1) * quantized);
      EXPECT_EQ(inside->traffic()[Collective::all_gather].bytes, (hosts.ranks - 1) * hosts.hosts * quantized);
    });
}

/// With beta 0 nothing is lost for good: sums so far, and what the errors still hold, are the sums of what was given.
TEST(ShardWire, errors_hold_what_was_not_sent) {
  for (const Hosts& hosts : {Hosts{1, 2}, Hosts{1, 3}, Hosts{2, 2}, Hosts{3, 2}})
    run_ranks(hosts.all(), [&](Communicator& world, const Context& context) {
      const Rank rank(world, context, hosts);
      const WireOptions options{.gradient_bits = 4, .feedback = ErrorFeedback{.beta = 0, .reset = 100}};
      WireErrors errors = make_wire_errors(context, rank.wire, hosts.all() * kShard, DType::f32);
      std::vector<double> sent(kShard), given(kShard);
      const auto add = [](std::vector<double>& sums, const std::vector<float>& more) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(more[i]);
      };
      for (int step = 0; step < 5; ++step) {
        const Tensor whole = rank.gradients(world.rank() + 10 * step, false);
        add(given, rank.reduce_scattered(whole));
        add(sent, rank.reduced(whole, options, &errors));
      }
      add(sent, rank.reduce_scattered(errors.first));
      if (errors.second) {
        Communicator& across = *rank.wire.over_hosts->across;
        const Tensor kept = context.empty({kShard}, DType::f32);
        across.wait(across.reduce_scatter(errors.second, kept), *context.stream);
        add(sent, kept.to_vector<float>());
      }
      for (size_t i = 0; i < sent.size(); ++i) ASSERT_NEAR(sent[i], given[i], 1e-4) << i;
    });
}

/// The mean of what arrives of the same gradients comes nearer to them than without errors, over two hops too.
TEST(ShardWire, feedback_takes_the_bias_out_of_gradients_that_stay) {
  for (const Hosts& hosts : {Hosts{1, 2}, Hosts{2, 2}})
    run_ranks(hosts.all(), [&](Communicator& world, const Context& context) {
      const Rank rank(world, context, hosts);
      const Tensor whole = rank.gradients(world.rank(), false);
      const std::vector<float> exact = rank.reduce_scattered(whole);
      const auto error_of_mean = [&](const WireOptions& options, WireErrors* errors) {
        constexpr int kSteps = 40;
        std::vector<double> sums(kShard);
        for (int step = 0; step < kSteps; ++step) {
          const std::vector<float> sum = rank.reduced(whole, options, errors);
          for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(sum[i]) / kSteps;
        }
        double squares = 0;
        for (size_t i = 0; i < sums.size(); ++i) squares += std::pow(sums[i] - static_cast<double>(exact[i]), 2);
        return std::sqrt(squares);
      };
      WireErrors errors = make_wire_errors(context, rank.wire, hosts.all() * kShard, DType::f32);
      const double plain = error_of_mean({.gradient_bits = 4}, nullptr),
                   fed_back = error_of_mean({.gradient_bits = 4, .feedback = ErrorFeedback{}}, &errors);
      EXPECT_LT(fed_back, 0.5 * plain);
      EXPECT_EQ(errors.next(), 40);
    });
}

TEST(ShardWire, errors_start_from_nothing_after_so_many_reductions) {
  run_ranks(2, [](Communicator& world, const Context& context) {
    const Rank rank(world, context, {1, 2});
    const WireOptions options{.gradient_bits = 4, .feedback = ErrorFeedback{.beta = 0.8, .reset = 3}};
    WireErrors errors = make_wire_errors(context, rank.wire, 2 * kShard, DType::f32);
    const Tensor whole = rank.gradients(world.rank(), false);
    std::vector<std::vector<float>> sums;
    for (int step = 0; step < 6; ++step) sums.push_back(rank.reduced(whole, options, &errors));
    EXPECT_NE(sums[0], sums[1]);
    for (size_t step = 0; step < 3; ++step) EXPECT_EQ(sums[step], sums[step + 3]);
  });
}

}  // namespace
}  // namespace nought::shard_wire_test
