#include "nought/autograd/recompute.h"

#include <cmath>

#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::recompute_test {
namespace {

RecomputeOptions options_of(Pool pool, bool contiguous, int64_t checkpoints = 0) {
  RecomputeOptions options = Recompute::full;
  options.tier.pool = pool, options.contiguous = contiguous, options.checkpoints = checkpoints;
  return options;
}

Tensor numbers(const Context& context, float first) {
  const Tensor x = context.empty({3, 4}, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = first + static_cast<float>(i);
  return x;
}

TEST(SavedInputs, come_back_as_they_were_wherever_they_are_kept) {
  const Context context = Context::reference();
  for (const Pool pool : {Pool::device, Pool::host})
    for (const bool contiguous : {false, true}) {
      SavedInputs saved(options_of(pool, contiguous));
      for (int pass = 0; pass < 2; ++pass) {
        std::vector<SavedInputs::Kept> kept;
        std::vector<std::vector<float>> expected;
        SavedInputs::Pass of_pass = saved.begin(context, 3, numbers(context, 0));
        for (int i = 0; i < 3; ++i) {
          const Tensor x = numbers(context, static_cast<float>(100 * pass + 10 * i));
          expected.push_back(x.to_vector<float>());
          kept.push_back(of_pass.keep(context, x));
          if (contiguous || pool == Pool::host) context.zero(x);  // it is a copy
        }
        for (size_t i = 3; i-- > 0;) {
          const Tensor back = kept[i](context);
          EXPECT_EQ(back.shape(), (Shape{3, 4}));
          EXPECT_EQ(back.to_vector<float>(), expected[i]);
          EXPECT_EQ(back.buffer()->pool(), Pool::device);
        }
      }
    }
}

TEST(SavedInputs, ranks_that_have_the_same_ones_keep_a_part_each) {
  for (const Pool pool : {Pool::device, Pool::host})
    for (const bool contiguous : {false, true})
      for (const int ranks : {1, 2, 5})
        run_ranks(ranks, [&](Communicator& world) {
          const Context context = Context::reference();
          RecomputeOptions options = options_of(pool, contiguous);
          options.partitioned = true;
          SavedInputs saved(options, &world);
          const Tensor x = numbers(context, 7);
          const std::vector<float> expected = x.to_vector<float>();
          const MemoryLedger& ledger = context.memory->ledger();
          const int64_t before = ledger.current(Category::activations, pool);
          SavedInputs::Pass pass = saved.begin(context, 1, x);
          const SavedInputs::Kept kept = pass.keep(context, x);
          EXPECT_EQ(ledger.current(Category::activations, pool) - before, round_up(ceil_div(12, ranks) * 4, 64));
          context.zero(x);
          const Tensor back = kept(context);
          EXPECT_EQ(back.shape(), (Shape{3, 4}));
          EXPECT_EQ(back.to_vector<float>(), expected);
        });
}

TEST(SavedInputs, in_fp8_take_a_byte_and_a_thirty_second_and_come_back_rounded) {
  for (const Pool pool : {Pool::device, Pool::host})
    for (const bool contiguous : {false, true})
      for (const int ranks : {1, 3})
        run_ranks(ranks, [&](Communicator& world) {
          const Context context = Context::cpu();
          RecomputeOptions options = options_of(pool, contiguous);
          options.fp8 = true, options.partitioned = ranks > 1;
          SavedInputs saved(options, &world);
          const Tensor x = context.empty({10, 100}, DType::bf16);
          for (int64_t i = 0; i < x.numel(); ++i) x.data<bf16_t>()[i] = bf16_t(0.37f * static_cast<float>(i - 400));
          const auto expected = x.to_vector<bf16_t>();
          const MemoryLedger& ledger = context.memory->ledger();
          const int64_t before = ledger.current(Category::activations, pool);
          SavedInputs::Pass pass = saved.begin(context, 1, x);
          const SavedInputs::Kept kept = pass.keep(context, x);
          const int64_t part = ceil_div(1000, ranks);
          EXPECT_EQ(ledger.current(Category::activations, pool) - before, round_up(part + ceil_div(part, 32), 64));
          context.zero(x);
          const Tensor back = kept(context);
          EXPECT_EQ(back.shape(), (Shape{10, 100}));
          for (int64_t i = 0; i < x.numel(); ++i) {
            const float want{expected[static_cast<size_t>(i)]}, got{back.data<bf16_t>()[i]};
            ASSERT_LE(std::abs(got - want), std::abs(want) / 16 + 0.001f) << i;
          }
        });
}

TEST(SavedInputs, a_contiguous_room_stays_and_holds_what_it_was_told) {
  const Context context = Context::reference();
  SavedInputs saved(options_of(Pool::host, true));
  const Tensor x = numbers(context, 0);
  const MemoryLedger& ledger = context.memory->ledger();
  const auto two = [&] {
    SavedInputs::Pass pass = saved.begin(context, 2, x);
    pass.keep(context, x);
    pass.keep(context, x);
    EXPECT_THROW(pass.keep(context, x), Error);
  };
  two();
  const int64_t room = ledger.current(Category::activations, Pool::host);
  EXPECT_GE(room, 2 * x.bytes());
  saved.begin(context, 1, x);
  EXPECT_EQ(ledger.current(Category::activations, Pool::host), room) << "a smaller pass needs no other";
}

TEST(SavedInputs, passes_whose_inputs_are_kept_at_one_time_have_rooms_of_their_own) {
  const Context context = Context::reference();
  SavedInputs saved(options_of(Pool::device, true));
  const MemoryLedger& ledger = context.memory->ledger();
  const Tensor ones = numbers(context, 1), twos = numbers(context, 2);
  SavedInputs::Kept first = saved.begin(context, 1, ones).keep(context, ones);
  const int64_t one_room = ledger.current(Category::activations);
  SavedInputs::Kept second = saved.begin(context, 1, twos).keep(context, twos);
  EXPECT_EQ(first(context).to_vector<float>(), ones.to_vector<float>());
  EXPECT_EQ(second(context).to_vector<float>(), twos.to_vector<float>());
  const int64_t two_rooms = ledger.current(Category::activations);
  EXPECT_GT(two_rooms, one_room);
  first = {}, second = {};
  first = saved.begin(context, 1, twos).keep(context, twos);
  second = saved.begin(context, 1, ones).keep(context, ones);
  EXPECT_EQ(ledger.current(Category::activations), two_rooms) << "both rooms are used again";
  EXPECT_EQ(first(context).to_vector<float>(), twos.to_vector<float>());
}

TEST(RecomputeOptions, checkpoints_divide_a_stack_of_units) {
  const auto units = [](int64_t checkpoints, int64_t stack) {
    return options_of(Pool::device, false, checkpoints).units_per_checkpoint(stack);
  };
  EXPECT_EQ(units(0, 12), 1);
  EXPECT_EQ(units(4, 12), 3);
  EXPECT_EQ(units(5, 12), 3);
  EXPECT_EQ(units(1, 12), 12);
  EXPECT_EQ(units(99, 12), 1);
  RecomputeOptions interval(Recompute::full);
  interval.interval = 5;
  EXPECT_EQ(interval.units_per_checkpoint(12), 5) << "and the last one has what is left";
}

TEST(RecomputeOptions, say_what_they_are) {
  EXPECT_EQ(RecomputeOptions().str(), "");
  EXPECT_EQ(RecomputeOptions(Recompute::selective).str(), "selective recompute");
  EXPECT_EQ(options_of(Pool::host, true, 1).str(), "full recompute, 1 checkpoint, inputs on the host, contiguous");
  EXPECT_EQ(options_of(Pool::file, false).str(), "full recompute, inputs in files");
  RecomputeOptions tiled;
  tiled.mlp_tiles = 0;
  EXPECT_EQ(tiled.str(), "MLP in tiles of tokens");
  tiled.mode = Recompute::selective, tiled.mlp_tiles = 3;
  EXPECT_EQ(tiled.str(), "selective recompute, MLP in 3 tiles of tokens");
}

}  // namespace
}  // namespace nought::recompute_test
