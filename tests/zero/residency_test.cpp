// Parameters are whole while they are leased, and where they are stored is what the policy says.
#include "nought/zero/residency.h"

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/small_units.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::residency_test {
namespace {

using testing::HasSubstr;

float value_at(size_t unit, int64_t i) { return static_cast<float>(static_cast<int64_t>(unit) * 1000 + i); }

/// Residency of the small Units, where each rank has written what it owns.
struct Rank {
  Rank(Communicator& ranks, const Context& context, int stage, int64_t bucket = 0)
      : ranks(ranks),
        memory(*context.memory),
        residency(context, ranks, Policy::stage(stage).for_ranks(ranks.size()), DType::f32, bucket, units) {
    for (size_t unit = 0; unit < units.size(); ++unit) write_owned(unit, 0);
  }
  void write_owned(size_t unit, float more) {
    const Tensor owned = residency.owned({unit, 0});
    const int64_t begin = residency.partition({unit, 0}).owned(ranks.rank()).begin;
    for (int64_t i = 0; i < owned.numel(); ++i) owned.data<float>()[i] = value_at(unit, begin + i) + more;
  }
  void expect_whole(size_t unit, float more) {
    const std::vector<float> whole = residency.whole({unit, 0}).to_vector<float>();
    ASSERT_EQ(static_cast<int64_t>(whole.size()), residency.partition({unit, 0}).padded());
    for (int64_t i = 0; i < units[unit]->segments()[0].size; ++i)
      ASSERT_EQ(whole[static_cast<size_t>(i)], value_at(unit, i) + more) << units[unit]->name() << " " << i;
  }
  int64_t gathers() const { return ranks.traffic()[Collective::all_gather].calls; }
  int64_t bytes() const { return memory.ledger().current(Category::parameters); }

  Communicator& ranks;
  Memory& memory;
  test::Units units = test::small_units();
  Residency residency;
};

TEST(Residency, a_lease_makes_a_unit_whole_and_its_end_gives_the_memory_back) {
  for (const auto& [ranks, stage] : {std::pair(1, 0), {1, 3}, {2, 3}, {3, 3}})
    run_ranks(ranks, [&, stage = stage](Communicator& group, const Context& context) {
      Rank rank(group, context, stage);
      const bool sharded = group.size() > 1;
      const int64_t stored = rank.bytes();
      for (size_t unit = 0; unit < rank.units.size(); ++unit) {
        rank.residency.lease(unit);
        rank.expect_whole(unit, 0);
        EXPECT_EQ(rank.bytes() - stored, sharded ? 4 * rank.residency.partition({unit, 0}).padded() : 0);
        rank.residency.release(unit);
        EXPECT_EQ(rank.bytes(), stored);
      }
      EXPECT_EQ(rank.gathers(), sharded ? 3 : 0);
    });
}

TEST(Residency, an_update_reaches_every_rank_alone_or_in_buckets) {
  for (const int stage : {1, 2})
    for (const auto& [bucket, collectives] : {std::pair(int64_t{0}, 3), {int64_t{256}, 2}, {int64_t{1'000'000}, 1}})
      run_ranks(2, [&, bucket = bucket, collectives = collectives](Communicator& group, const Context& context) {
        Rank rank(group, context, stage, bucket);
        for (const float update : {1.f, 2.f}) {
          for (size_t unit = 0; unit < rank.units.size(); ++unit) rank.write_owned(unit, update);
          const int64_t before = rank.gathers();
          rank.residency.exchange_updates();
          EXPECT_EQ(rank.gathers() - before, collectives);
          for (const size_t unit : {2, 0, 1}) {  // in whatever order they are leased
            rank.residency.lease(unit);
            rank.expect_whole(unit, update);
            rank.residency.release(unit);
          }
        }
        rank.residency.settle();
      });
}

/// Two hosts of two ranks, where one of them holds the whole Unit in shares.
struct WireRank {
  WireRank(Communicator& world, const Context& context, int secondary, int weight_bits)
      : mesh(world, {.shard = 4, .host_ranks = 2, .secondary = secondary}),
        residency(context, mesh, Policy::stage(3), DType::f32, 0, units, {}, weight_bits) {
    for (size_t unit = 0; unit < units.size(); ++unit) write(context, unit, 0);
  }
  void write(const Context& context, size_t unit, float more) {
    residency.begin_update({unit, 0}, Pool::device, false);
    const Tensor owned = residency.updating({unit, 0});
    const int64_t begin = residency.partition({unit, 0}).owned(mesh.world().rank()).begin;
    std::vector<float> values;
    for (int64_t i = 0; i < owned.numel(); ++i) values.push_back(value_at(unit, begin + i) + more);
    context.upload<float>(values, owned);
    residency.end_update({unit, 0});
  }
  std::vector<float> leased(size_t unit, bool exact = false) {
    if (exact) {
      residency.lease_exact(unit);
    } else {
      residency.lease(unit);
    }
    const std::vector<float> values = residency.whole({unit, 0}).to_vector<float>();
    residency.release(unit);
    return values;
  }
  void expect_values(const std::vector<float>& values, size_t unit, float more, double within) const {
    for (int64_t i = 0; i < units[unit]->segments()[0].size; ++i)
      ASSERT_NEAR(values[static_cast<size_t>(i)], value_at(unit, i) + more, within) << unit << " " << i;
  }
  int64_t between() const { return mesh.over_hosts(Group::parameters)->across->traffic().total_bytes(); }

  test::Units units = test::small_units();
  Mesh mesh;
  Residency residency;
};

TEST(Residency, neighbours_keep_what_was_gathered_until_it_is_written_again) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    WireRank rank(world, context, 2, 0);
    EXPECT_EQ(&rank.mesh.secondary(), rank.mesh.over_hosts(Group::parameters)->inside);
    for (const float more : {0.f, 5.f}) {
      for (const size_t unit : {0, 1, 2}) {
        rank.write(context, unit, more);
        const int64_t before = rank.between();
        rank.expect_values(rank.leased(unit), unit, more, 0);
        const int64_t once = rank.between();
        EXPECT_EQ(once - before, 4 * rank.residency.partition({unit, 0}).shard()) << "to the other host";
        for (const bool exact : {false, true}) rank.expect_values(rank.leased(unit, exact), unit, more, 0);
        EXPECT_EQ(rank.between(), once) << "nothing leaves the host";
      }
    }
  });
}

TEST(Residency, the_shares_of_neighbours_are_all_that_is_kept_beside) {
  for (const int neighbours : {1, 2})
    run_ranks(4, [&](Communicator& world, const Context& context) {
      WireRank rank(world, context, neighbours, 0);
      int64_t padded = 0;
      for (const size_t unit : {0, 1, 2}) padded += rank.residency.partition({unit, 0}).padded();
      EXPECT_EQ(context.memory->ledger().current(Category::parameters), padded + (neighbours > 1 ? 2 * padded : 0));
    });
}

TEST(Residency, passes_gather_codes_and_files_get_the_values) {
  for (const int neighbours : {1, 2})
    run_ranks(4, [&](Communicator& world, const Context& context) {
      WireRank rank(world, context, neighbours, 8);
      const size_t unit = 1;
      for (const float more : {0.f, 3.f}) {
        rank.write(context, unit, more);
        const double most = double{value_at(unit, rank.units[unit]->segments()[0].size)} + 3;
        rank.expect_values(rank.leased(unit, /*exact=*/true), unit, more, 0);
        const int64_t before = rank.between();
        const std::vector<float> quantized = rank.leased(unit);
        rank.expect_values(quantized, unit, more, most / 128);
        EXPECT_NE(quantized[3], value_at(unit, 3) + more) << "codes were sent";
        EXPECT_EQ(rank.between() - before, wire_record_bytes(rank.residency.partition({unit, 0}).shard(), 8));
        EXPECT_EQ(rank.leased(unit), quantized);
        rank.residency.prefetch(unit);
        rank.expect_values(rank.leased(unit, /*exact=*/true), unit, more, 0);
        EXPECT_EQ(rank.leased(unit), quantized) << "files change nothing";
      }
    });
}

TEST(Residency, nothing_is_exchanged_where_all_have_it_or_nobody_keeps_it) {
  for (const int stage : {0, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      Rank rank(group, context, stage);
      rank.residency.exchange_updates();
      EXPECT_EQ(rank.gathers(), 0);
    });
}

TEST(Residency, leases_nest_and_a_prefetch_is_the_gather_of_the_lease) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    Rank rank(group, context, 3);
    Residency& residency = rank.residency;
    residency.prefetch(1);
    residency.prefetch(1);
    residency.lease(1);
    residency.lease(1);
    residency.prefetch(1);
    EXPECT_EQ(rank.gathers(), 1);
    residency.release(1);
    rank.expect_whole(1, 0);
    residency.release(1);
    residency.lease(1);
    EXPECT_EQ(rank.gathers(), 2) << "the last release gave it away";
    residency.release(1);
  });
}

TEST(Residency, each_rank_stores_its_shard_or_everything) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& group, const Context& context) {
      Rank rank(group, context, stage);
      for (size_t unit = 0; unit < rank.units.size(); ++unit) {
        const Partition& partition = rank.residency.partition({unit, 0});
        EXPECT_EQ(rank.residency.updating({unit, 0}).numel(), stage == 3 ? partition.shard() : partition.padded());
        EXPECT_EQ(rank.residency.owned({unit, 0}).numel(), partition.shard());
      }
      EXPECT_EQ(rank.residency.sharded(), stage == 3);
    });
}

/// Each in its own dtype: bf16 for one of the frozen parameters.
TEST(Residency, what_is_frozen_is_gathered_as_all_else_and_never_exchanged) {
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t bucket : {int64_t{0}, int64_t{1'000'000}})
      run_ranks(2, [&](Communicator& group, const Context& context) {
        test::Units units;
        Unit& unit = *units.emplace_back(std::make_unique<Unit>("block"));
        unit.add("trained", {70}, Init::zeros());
        unit.add("frozen", {30}, Init::zeros(), {.trainable = false});
        unit.add("narrow", {100}, Init::zeros(), {.trainable = false, .dtype = DType::bf16});
        units.emplace_back(std::make_unique<Unit>("next"))->add("more", {5}, Init::zeros());
        Residency residency(context, group, Policy::stage(stage), DType::f32, bucket, units);
        const int64_t trained = 128 + 64, frozen = 64, narrow = 128, parts = stage == 3 ? 2 : 1;
        EXPECT_EQ(context.memory->ledger().current(Category::parameters),
                  (4 * trained + 4 * frozen + 2 * narrow) / parts);
        for (size_t segment = 0; segment < 3; ++segment)
          context.run(Fill{.x = residency.owned({0, segment}), .value = 1.0 + group.rank() + 10.0 * segment});
        const auto gathered = [&] { return group.traffic()[Collective::all_gather].elements; };
        residency.exchange_updates();
        residency.settle();
        EXPECT_EQ(gathered(), stage == 1 || stage == 2 ? trained / 2 : 0);
        residency.lease(0);
        if (stage == 3) {
          EXPECT_EQ(gathered(), (128 + frozen + narrow) / 2);
          for (size_t segment = 0; segment < 3; ++segment) {
            const std::vector<float> whole = residency.whole({0, segment}).to_vector<float>();
            EXPECT_EQ(whole.front(), 1.0F + 10.0F * static_cast<float>(segment));
            EXPECT_EQ(whole.back(), 2.0F + 10.0F * static_cast<float>(segment));
          }
        }
        EXPECT_EQ(residency.whole({0, 2}).dtype(), DType::bf16);
        residency.release(0);
        EXPECT_EQ(context.memory->ledger().current(Category::parameters),
                  (4 * trained + 4 * frozen + 2 * narrow) / parts);
      });
}

/// Residency of Units of 1000 elements each, that are offloaded and where each rank has written what it keeps.
struct Elsewhere {
  Elsewhere(Communicator& ranks, const Context& context, const ParameterOffload& offload)
      : ranks(ranks), context(context), residency(context, ranks, Policy::stage(3), DType::f32, 0, units, offload) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const SegmentIndex at{unit, 0};
      residency.begin_update(at, Pool::device, /*reads=*/false);
      const Interval kept = residency.kept(at);
      std::vector<float> values;
      for (int64_t i = kept.begin; i < kept.end; ++i) values.push_back(value_at(unit, i));
      context.upload<float>(values, residency.updating(at));
      residency.end_update(at);
    }
    residency.settle();
  }
  static test::Units make_units() {
    test::Units units;
    for (const char* name : {"a", "b", "c", "d", "e"})
      units.emplace_back(std::make_unique<Unit>(name))->add(name, {1000}, Init::zeros());
    return units;
  }
  void expect_whole(size_t unit) {
    const std::vector<float> whole = context.to_host<float>(residency.whole({unit, 0}));
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(whole[static_cast<size_t>(i)], value_at(unit, i));
  }
  int64_t brought() const { return residency.traffic().read / 4 / residency.kept({0, 0}).size(); }

  Communicator& ranks;
  Context context;
  test::Units units = make_units();
  Residency residency;
};

TEST(Residency, a_lease_brings_what_lives_elsewhere) {
  const test::TempFolder folder;
  for (const auto& [pool, guarded] : {std::pair(Pool::host, true), {Pool::file, true}, {Pool::file, false}})
    for (const int size : {1, 2, 3})
      run_ranks(test::contexts_of(size, guarded), [&, pool = pool](Communicator& ranks, const Context& context) {
        Elsewhere rank(ranks, context, {.tier = {pool, folder.path().string()}});
        Residency& residency = rank.residency;
        EXPECT_TRUE(residency.moves());
        residency.prefetch(2);
        for (const size_t unit : {2, 0, 1, 2, 4}) {
          residency.lease(unit);
          residency.prefetch(unit);
          residency.lease(unit);
          residency.release(unit);
          rank.expect_whole(unit);
          residency.release(unit);
        }
        residency.prefetch(3);
        residency.settle();
        residency.drop_prefetched();
        context.stream->synchronize();  // what runs late keeps what it reads
        EXPECT_EQ(context.memory->ledger().current(Category::parameters), 0);
        const Interval own = residency.partition({1, 0}).owned(ranks.rank());
        EXPECT_EQ(context.to_host<float>(residency.read({1, 0}, {own.begin + 3, own.begin + 4})).front(),
                  value_at(1, own.begin + 3));
      });
}

/// A Unit of a rank is 1024 elements alone, or 512 of two: they fill as many buffers of 512 as that.
TEST(Residency, units_are_fetched_ahead_while_there_are_buffers) {
  const test::TempFolder folder;
  for (const auto& [size, buffers, ahead] : {std::tuple(1, 6, 3), {2, 3, 3}, {2, 1, 1}, {1, 1, 0}})
    run_ranks(size, [&, buffers = buffers, ahead = ahead](Communicator& ranks, const Context& context) {
      Elsewhere rank(ranks, context,
                     {.tier = {Pool::file, folder.path().string()}, .buffers = buffers, .buffer_size = 512});
      Residency& residency = rank.residency;
      size_t unit = 0;
      while (residency.fetch_ahead(unit)) ++unit;
      EXPECT_EQ(unit, static_cast<size_t>(ahead));
      EXPECT_EQ(rank.brought(), ahead);
      EXPECT_EQ(ranks.traffic()[Collective::all_gather].calls, 0) << "what comes later is not gathered yet";
      for (unit = 0; unit < rank.units.size(); ++unit) {
        residency.lease(unit);
        rank.expect_whole(unit);
        EXPECT_TRUE(residency.fetch_ahead(unit)) << "it is there";
        residency.release(unit);
      }
      EXPECT_EQ(rank.brought(), 5) << "what was fetched is not brought again";
    });
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    Rank rank(ranks, context, 3);
    EXPECT_FALSE(rank.residency.fetch_ahead(0)) << "it stays on the device";
  });
}

TEST(Residency, what_is_not_leased_is_neither_read_nor_released) {
  for (const int stage : {0, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      Rank rank(group, context, stage);
      EXPECT_THAT(test::message_of<Error>([&] { rank.residency.whole({1, 0}); }), HasSubstr("second"));
      EXPECT_THAT(test::message_of<Error>([&] { rank.residency.release(1); }), HasSubstr("second"));
      rank.residency.prefetch(1);
      EXPECT_THROW(rank.residency.whole({1, 0}), Error) << "on its way is not yet there";
      rank.residency.settle();
    });
}

}  // namespace
}  // namespace nought::residency_test
