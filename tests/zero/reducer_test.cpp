// Gradients of all ranks become their sum, at every stage, alone or in buckets, and nothing of a step before is left.
#include "nought/zero/reducer.h"

#include "support/message_of.h"
#include "support/small_units.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::reducer_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kNoBuckets = 0, kOneBucket = 1'000'000;

/// Small integers: any dtype holds their sums exactly.
float gradient_at(size_t unit, int64_t i, int rank, int round) {
  return static_cast<float>((static_cast<int64_t>(unit) * 3 + i + rank * 5 + round * 2) % 9 - 4);
}

struct Rank {
  Rank(Communicator& ranks, const Context& context, const ShardingOptions& options)
      : Rank(ranks, context, options, Mesh(ranks)) {}
  Rank(Communicator& ranks, const Context& context, const ShardingOptions& options, const Mesh& mesh)
      : ranks(ranks), reducer(context, mesh, options, units) {}

  void write(const GradSink& sink, size_t unit, int64_t first, int round) {
    visit_float(sink.into.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* into = sink.into.data<T>();
      for (int64_t i = 0; i < sink.into.numel(); ++i) {
        const float gradient = gradient_at(unit, first + i, ranks.rank(), round);
        into[i] = T(sink.accumulate ? static_cast<float>(into[i]) + gradient : gradient);
      }
    });
  }
  /// All parameters of a Unit, in the reverse of their order; without those that `skip` names.
  void backward(size_t unit, int round, const std::string& skip = "") {
    const auto& parameters = units[unit]->parameters();
    for (size_t i = parameters.size(); i-- > 0;)
      if (parameters[i].name != skip) write(reducer.sink(current, unit, i, i), unit, parameters[i].range.begin, round);
    reducer.finish(current, unit);
  }
  void micro_batch(bool last, int round, const std::string& skip = "") {
    current = reducer.begin_micro_batch(last);
    for (size_t unit = units.size(); unit-- > 0;) backward(unit, round, skip);
  }
  /// One whose backward pass never meets this Unit.
  void micro_batch_without(size_t left_out, bool last, int round) {
    current = reducer.begin_micro_batch(last);
    for (size_t unit = units.size(); unit-- > 0;)
      if (unit != left_out) backward(unit, round);
  }
  /// What owned(unit) must be when these rounds were added up; parameters of that name are zero.
  std::vector<float> expected(size_t unit, const std::vector<int>& rounds, const std::string& skip = "") const {
    const Partition partition(units[unit]->segments()[0].size, ranks.size());
    const Interval own = partition.owned(ranks.rank());
    std::vector<float> sums(static_cast<size_t>(own.size()), 0);
    for (const Parameter& parameter : units[unit]->parameters()) {
      if (parameter.name == skip) continue;
      const Interval mine = intersect(own, parameter.range);
      for (int64_t i = mine.begin; i < mine.end; ++i)
        for (const int round : rounds)
          for (int rank = 0; rank < ranks.size(); ++rank)
            sums[static_cast<size_t>(i - own.begin)] += gradient_at(unit, i, rank, round);
    }
    return sums;
  }
  void expect_sums(const std::vector<int>& rounds, const std::string& skip = "") const {
    for (size_t unit = 0; unit < units.size(); ++unit)
      EXPECT_EQ(reducer.owned({unit, 0}).to_vector<float>(), expected(unit, rounds, skip)) << units[unit]->name();
  }

  Communicator& ranks;
  test::Units units = test::small_units();
  Reducer reducer;
  Reducer::MicroBatch current = reducer.begin_micro_batch(true);
};

/// Calls body(rank, stage) for stages, rank counts, buckets, overlap and dtypes on the wire.
template <class Body>
void on_every_layout(const Body& body) {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3})
      for (const int64_t bucket : {kNoBuckets, kOneBucket})
        for (const DType wire : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(fmt::format("{} ranks, stage {}, bucket {}, wire {}", ranks, stage, bucket, name_of(wire)));
          run_ranks(ranks, [&](Communicator& group, const Context& context) {
            Rank rank(group, context,
                      {.policy = Policy::stage(stage).for_ranks(ranks),
                       .overlap = (stage + ranks) % 2 == 0,
                       .wire_dtype = wire,
                       .reduce_bucket = bucket});
            body(rank);
          });
        }
}

TEST(Reducer, every_rank_gets_its_interval_of_the_sum) {
  on_every_layout([](Rank& rank) {
    for (const int step : {0, 1, 2}) {
      rank.micro_batch(true, step);
      rank.reducer.settle();
      rank.expect_sums({step});
      rank.reducer.reset();
    }
  });
}

/// Values of 32 bits in two hops, and in one where there are no hosts: integers have the sums of a reduce-scatter.
TEST(Reducer, hops_have_the_sums_of_every_micro_batch_alone_or_in_buckets) {
  for (const auto& [ranks, host_ranks] : {std::pair(2, 0), {3, 0}, {4, 2}, {6, 2}})
    for (const int64_t bucket : {kNoBuckets, kOneBucket})
      for (const bool overlap : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} on a host, bucket {}", ranks, host_ranks, bucket));
        run_ranks(ranks, [&, host_ranks = host_ranks](Communicator& group, const Context& context) {
          const Mesh mesh(group, {.shard = group.size(), .host_ranks = host_ranks});
          Rank rank(group, context,
                    {.policy = Policy::stage(3),
                     .overlap = overlap,
                     .reduce_bucket = bucket,
                     .codes = {.gradient_bits = 32, .feedback = ErrorFeedback{}}},
                    mesh);
          for (const int step : {0, 1}) {
            rank.micro_batch(false, step);
            rank.micro_batch(true, step + 1, "second.weight");
            rank.reducer.finish_step();
            for (size_t unit = 0; unit < rank.units.size(); ++unit) {
              std::vector<float> sums = rank.expected(unit, {step});
              const std::vector<float> more = rank.expected(unit, {step + 1}, "second.weight");
              for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
              EXPECT_EQ(rank.reducer.owned({unit, 0}).to_vector<float>(), sums) << rank.units[unit]->name();
            }
            rank.reducer.reset();
          }
          EXPECT_EQ(mesh.traffic()[Collective::reduce_scatter].calls, 0);
        });
      }
}

TEST(Reducer, micro_batches_are_added_up) {
  on_every_layout([](Rank& rank) {
    rank.micro_batch(false, 0);
    rank.micro_batch(false, 1);
    rank.micro_batch(true, 2);
    rank.reducer.settle();
    rank.expect_sums({0, 1, 2});
  });
}

TEST(Reducer, a_parameter_that_nobody_wrote_has_the_gradient_zero) {
  on_every_layout([](Rank& rank) {
    rank.micro_batch(true, 0);  // leaves values where the next step must not find them
    rank.reducer.settle();
    rank.reducer.reset();
    rank.micro_batch(true, 1, "second.weight");
    rank.reducer.settle();
    rank.expect_sums({1}, "second.weight");
  });
}

TEST(Reducer, a_unit_that_a_step_leaves_out_has_the_gradient_zero) {
  on_every_layout([](Rank& rank) {
    rank.micro_batch(true, 0);  // leaves values where the next step must not find them
    rank.reducer.finish_step();
    rank.reducer.reset();
    for (size_t left_out = 0; left_out < rank.units.size(); ++left_out) {
      rank.micro_batch_without(left_out, true, 1);
      rank.reducer.finish_step();
      for (size_t unit = 0; unit < rank.units.size(); ++unit)
        EXPECT_EQ(rank.reducer.owned({unit, 0}).to_vector<float>(),
                  rank.expected(unit, unit == left_out ? std::vector<int>() : std::vector{1}))
            << rank.units[unit]->name() << " without " << rank.units[left_out]->name();
      rank.reducer.reset();
    }
  });
}

TEST(Reducer, a_unit_that_only_earlier_micro_batches_met_has_their_sum) {
  on_every_layout([](Rank& rank) {
    rank.micro_batch(false, 0);
    rank.micro_batch_without(1, true, 1);
    rank.reducer.finish_step();
    EXPECT_EQ(rank.reducer.owned({0, 0}).to_vector<float>(), rank.expected(0, {0, 1}));
    EXPECT_EQ(rank.reducer.owned({1, 0}).to_vector<float>(), rank.expected(1, {0}));
    EXPECT_EQ(rank.reducer.owned({2, 0}).to_vector<float>(), rank.expected(2, {0, 1}));
  });
}

TEST(Reducer, micro_batches_whose_passes_interleave_are_added_up) {
  on_every_layout([](Rank& rank) {
    const auto write_all = [&](Reducer::MicroBatch& of, size_t unit, int round) {
      const auto& parameters = rank.units[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i)
        rank.write(rank.reducer.sink(of, unit, i, i), unit, parameters[i].range.begin, round);
    };
    for (const bool second_ends_first : {false, true}) {
      Reducer::MicroBatch batches[2] = {rank.reducer.begin_micro_batch(second_ends_first),
                                        rank.reducer.begin_micro_batch(!second_ends_first)};
      for (const int round : {0, 1}) write_all(batches[round], 2, round);  // as a head does in the forward pass
      for (const int round : {second_ends_first ? 1 : 0, second_ends_first ? 0 : 1}) {
        rank.reducer.finish(batches[round], 2);
        for (const size_t unit : {1, 0})
          write_all(batches[round], unit, round), rank.reducer.finish(batches[round], unit);
      }
      rank.reducer.finish_step();
      rank.expect_sums({0, 1});
      rank.reducer.reset();
    }
  });
}

TEST(Reducer, without_optimizer_sharding_every_rank_has_the_whole_sum) {
  for (const int64_t bucket : {kNoBuckets, kOneBucket})
    run_ranks(3, [&](Communicator& group, const Context& context) {
      Rank rank(group, context, {.policy = Policy::stage(0), .reduce_bucket = bucket});
      rank.micro_batch(true, 0);
      rank.reducer.settle();
      for (size_t unit = 0; unit < rank.units.size(); ++unit) {
        const std::vector<float> whole = rank.reducer.reduced({unit, 0}).to_vector<float>();
        for (const Parameter& parameter : rank.units[unit]->parameters())
          for (int64_t i = parameter.range.begin; i < parameter.range.end; ++i) {
            float sum = 0;
            for (int peer = 0; peer < 3; ++peer) sum += gradient_at(unit, i, peer, 0);
            ASSERT_EQ(whole[static_cast<size_t>(i)], sum) << parameter.name << " " << i;
          }
      }
    });
}

TEST(Reducer, a_bucket_takes_as_many_units_as_it_holds_in_one_collective) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      for (const auto& [bucket, collectives] : {std::pair(kNoBuckets, 3), {int64_t{256}, 2}, {kOneBucket, 1}}) {
        Rank rank(group, context, {.policy = Policy::stage(stage), .reduce_bucket = bucket});
        const int64_t before = group.traffic()[Collective::reduce_scatter].calls;
        rank.micro_batch(true, 0);
        rank.reducer.settle();
        EXPECT_EQ(rank.reducer.buckets(), static_cast<size_t>(collectives));
        EXPECT_EQ(group.traffic()[Collective::reduce_scatter].calls - before, collectives);
        rank.expect_sums({0});
      }
    });
}

TEST(Reducer, only_gradient_sharding_reduces_before_the_last_micro_batch) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      Rank rank(group, context, {.policy = Policy::stage(stage)});
      rank.micro_batch(false, 0);
      EXPECT_EQ(group.traffic()[Collective::reduce_scatter].calls, stage >= 2 ? 3 : 0);
      rank.reducer.settle();
    });
}

TEST(Reducer, with_gradient_sharding_only_shards_stay) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    Rank rank(group, context, {.policy = Policy::stage(2)});
    const MemoryLedger& ledger = context.memory->ledger();
    const int64_t shards = ledger.current(Category::gradients);
    rank.micro_batch(true, 0);
    EXPECT_GT(ledger.peak(Category::gradients), shards);
    rank.reducer.settle();
    EXPECT_EQ(ledger.current(Category::gradients), shards);
  });
}

TEST(Reducer, what_is_frozen_has_neither_a_buffer_nor_a_sink_nor_a_reduction) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      auto units = test::small_units();
      units[0]->choose_trained([](const Parameter& parameter) { return parameter.name == "first.bias"; });
      units[1]->choose_trained([](const Parameter&) { return false; });
      Reducer reducer(context, group, {.policy = Policy::stage(stage)}, units);
      EXPECT_EQ(reducer.segments(), 2u);
      const int64_t padded = 2 * 64;  // "first.bias" and "third", each over two ranks
      EXPECT_EQ(context.memory->ledger().current(Category::gradients), 4 * padded / (stage >= 2 ? 2 : 1));
      Reducer::MicroBatch of = reducer.begin_micro_batch(true);
      EXPECT_THAT(test::message_of<Error>([&] { reducer.sink(of, 0, 0, 0); }), HasSubstr("unit first is not trained"));
      for (float& each : reducer.sink(of, 2, 0, 0).into.span<float>()) each = 3;
      reducer.finish(of, 2);
      reducer.finish(of, 1);
      for (float& each : reducer.sink(of, 0, 1, 1).into.span<float>()) each = 5;
      reducer.finish(of, 0);
      reducer.settle();
      EXPECT_EQ(group.traffic()[Collective::reduce_scatter].elements, padded / 2);
      if (group.rank() != 0) return;
      std::vector<float> sums(32, 0);
      std::fill_n(sums.begin(), 6, 10.0F);
      EXPECT_EQ(reducer.owned({0, 1}).to_vector<float>(), sums);
    });
}

TEST(Reducer, adjacent_parameters_are_one_sink_everywhere_or_nowhere) {
  run_ranks(1, [](Communicator& group, const Context& context) {
    Rank rank(group, context, {});
    const GradSink both = rank.reducer.sink(rank.current, 1, 0, 1);
    EXPECT_EQ(both.into.numel(), 5 + 7 * 9);
    EXPECT_FALSE(both.accumulate);
    EXPECT_TRUE(rank.reducer.sink(rank.current, 1, 0, 1).accumulate) << "the second writer adds";
    EXPECT_THAT(test::message_of<Error>([&] { rank.reducer.sink(rank.current, 1, 1, 2); }), HasSubstr("unit second"));
    rank.reducer.reset();
    EXPECT_FALSE(rank.reducer.sink(rank.current, 1, 1, 2).accumulate) << "a new step begins with nothing";
  });
}

}  // namespace
}  // namespace nought::reducer_test
