// What lives elsewhere comes back as it was written, and takes memory by the order of the calls alone.
#include "nought/offload/offload_pool.h"

#include <chrono>
#include <thread>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/places.h"
#include "support/swap_fault.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/offload/device_copies.h"
#include "nought/offload/host_context.h"
#include "nought/offload/state_traffic.h"
#include "nought/offload/tier.h"
#include "nought/offload/under_way.h"

namespace nought::offload_pool_test {
namespace {

using test::kPlaces;
using test::Place;
using test::values_from;

constexpr int64_t kNumel = 50'000;

/// A pool with three slots of kNumel.
struct Elsewhere {
  explicit Elsewhere(const Place& place)
      : context(place.guarded ? test::guarded_context() : Context::cpu()),
        pool(context, {.tier = {place.pool, folder.path().string(), {.backend = AioBackend::threads}},
                       .what = "numbers",
                       .category = Category::gradients,
                       .owner = "rank 3"}) {
    for (int slot = 0; slot < 3; ++slot) pool.add(kNumel, DType::f32);
    pool.open();
  }
  Tensor on_device(float first, DType dtype = DType::f32) const {
    const Tensor x = pool.device_room(kNumel, dtype, Category::gradients);
    const Tensor wide = context.upload<float>({kNumel}, values_from(first, kNumel));
    context.run(Cast{.x = wide, .y = x});
    return x;
  }
  std::vector<float> brought(OffloadPool::Slot slot, Interval elements) {
    const Tensor into = pool.device_room(elements.size(), DType::f32, Category::workspace);
    pool.await(pool.bring(slot, elements, into));
    return context.to_host<float>(into);
  }

  test::TempFolder folder;
  Context context;
  OffloadPool pool;
};

TEST(OffloadPool, what_was_written_comes_back_whole_and_in_parts) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(fmt::format("{}, {}", name_of(place.pool), place.guarded));
    Elsewhere of(place);
    for (const float more : {0.F, 0.5F}) {
      for (size_t slot = 0; slot < 3; ++slot) of.pool.write(slot, of.on_device(static_cast<float>(slot) + more));
      for (size_t slot = 0; slot < 3; ++slot) {
        const std::vector<float> all = values_from(static_cast<float>(slot) + more, kNumel);
        EXPECT_EQ(of.brought(slot, {0, kNumel}), all);
        EXPECT_EQ(of.brought(slot, {777, 40'001}), std::vector<float>(all.begin() + 777, all.begin() + 40'001));
        of.pool.complete(slot);
        EXPECT_EQ(of.pool.values(slot, {5, 7}).to_vector<float>(),
                  std::vector<float>(all.begin() + 5, all.begin() + 7));
        EXPECT_EQ(of.pool.in_file(slot), !of.pool.held(slot));
      }
    }
    const int64_t bytes = 6 * 4 * kNumel, back = bytes + 6 * 4 * (40'001 - 777);
    const bool file = place.pool == Pool::file;
    EXPECT_EQ(of.pool.traffic(), (StateTraffic{.down = place.guarded ? bytes : 0,
                                               .up = place.guarded ? back : 0,
                                               .read = file ? back : 0,
                                               .written = file ? bytes : 0}));
  }
}

TEST(OffloadPool, adds_what_the_device_would_add_and_shows_it_on_the_host) {
  for (const Place& place : kPlaces)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Elsewhere of(place);
      const Tensor sum = of.context.empty({kNumel}, DType::f32), more = of.on_device(0.25, dtype);
      of.context.run(Cast{.x = of.on_device(1, dtype), .y = sum});
      of.context.run(AddTo{.x = more, .into = sum});
      std::vector<float> seen;
      of.pool.add_to(1, of.on_device(1, dtype), /*add=*/false);
      of.pool.add_to(1, more, /*add=*/true, [&](const Context& host, const Tensor& values) {
        EXPECT_EQ(host.memory, of.context.memory);
        seen = values.to_vector<float>();
      });
      of.pool.settle();
      EXPECT_EQ(seen, of.context.to_host<float>(sum));
      EXPECT_EQ(of.pool.values(1).to_vector<float>(), seen);
    }
}

TEST(OffloadPool, has_two_transfers_in_memory_whatever_their_number) {
  for (const Place& place : kPlaces) {
    Elsewhere of(place);
    const MemoryLedger& ledger = of.context.memory->ledger();
    const auto alive = [&] {
      of.context.stream->synchronize();
      return ledger.current(Category::gradients) + ledger.current(Category::gradients, Pool::host);
    };
    const int64_t before = alive(), one = 4 * kNumel + 8192;
    for (int i = 0; i < 6; ++i) {
      of.pool.add_to(static_cast<size_t>(i % 3), of.on_device(0), /*add=*/false);
      EXPECT_LE(alive() - before, static_cast<int64_t>(UnderWay::kMost) * (place.guarded ? 2 : 1) * one) << i;
    }
    of.pool.settle();
    EXPECT_EQ(alive(), before);
  }
}

TEST(OffloadPool, reads_and_writes_parts_of_several_slots_at_once) {
  Elsewhere of({Pool::file, false});
  const Tensor values = of.context.upload<float>({kNumel}, values_from(3, kNumel));
  std::vector<OffloadPool::Part> parts;
  for (const size_t slot : {0, 2}) parts.push_back({slot, 0, values});
  of.pool.write(parts).wait();
  const Tensor back = of.context.empty({30}, DType::f32);
  of.pool.read(std::vector<OffloadPool::Part>{{0, 10, back.flat(0, 10)}, {2, 40, back.flat(10, 30)}}).wait();
  std::vector<float> expected = values_from(13, 10);
  for (const float value : values_from(43, 20)) expected.push_back(value);
  EXPECT_EQ(back.to_vector<float>(), expected);
}

TEST(OffloadPool, counts_how_long_it_waited_and_names_the_rank_where_it_fails) {
  const test::ScopedSwapFault scope([](const SwapCall& call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return call.write ? call.result : int64_t{-EIO};
  });
  Elsewhere of({Pool::file, false});
  of.pool.write(1, of.on_device(0));
  of.pool.settle();
  EXPECT_GE(of.pool.times().on_way, 0.004);
  EXPECT_GE(of.pool.times().waited, 0.002);
  EXPECT_THAT(of.pool.drive(), testing::HasSubstr(of.folder.path().string() + ", by threads"));
  EXPECT_THAT(test::message_of<IoError>([&] {
                of.brought(1, {0, 5});
              }),
              testing::AllOf(testing::HasSubstr("rank 3"), testing::HasSubstr("numbers")));
}

TEST(DeviceCopies, follow_what_they_are_told_to_and_are_joined) {
  const Context context = test::guarded_context();
  DeviceCopies copies(context, "numbers");
  const Tensor device = context.zeros({5}, DType::f32), back = context.zeros({5}, DType::f32);
  const Tensor host = Tensor::zeros(*context.memory, {5}, DType::f32, Category::workspace, Pool::host);
  context.run(Fill{.x = device, .value = 3});
  copies.follow(context.stream->record());
  copies.up(host, back, {copies.down(device, host)});
  copies.join();
  EXPECT_EQ(context.to_host<float>(back), std::vector<float>(5, 3));
  EXPECT_EQ(host_context(context).memory, context.memory);
  EXPECT_EQ(copies.bytes_down(), 20);
  EXPECT_EQ(copies.bytes_up(), 20);
}

TEST(UnderWay, lets_go_of_the_oldest_or_of_those_with_a_key) {
  const Context context = Context::cpu();
  const auto alive = [&] { return context.memory->ledger().current(Category::workspace) / 64; };
  UnderWay under_way;
  for (const size_t key : {7, 8, 7, 9}) under_way.add({}, {context.empty({16}, DType::f32, Category::workspace)}, key);
  under_way.settle_of(7);
  EXPECT_EQ(alive(), 2);
  under_way.settle(1);
  EXPECT_EQ(alive(), 1);
  under_way.settle_of(9);
  EXPECT_EQ(alive(), 0);
}

}  // namespace
}  // namespace nought::offload_pool_test
