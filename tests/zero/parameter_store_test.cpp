// What is kept elsewhere comes to the device as it was written, and what goes back is waited for.
#include "nought/zero/parameter_store.h"

#include <chrono>
#include <thread>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/places.h"
#include "support/swap_fault.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::parameter_store_test {
namespace {

using test::kPlaces;
using test::Place;
using test::values_from;

constexpr int64_t kNumel = 100'000;

/// A store with rooms of kNumel.
struct Stored {
  Stored(const Place& place, int rooms)
      : context(test::contexts_of(1, place.guarded).front()),
        store(context, {.tier = {place.pool, folder.path().string()}}, "rank 0") {
    for (int i = 0; i < rooms; ++i) numbers.push_back(store.add(kNumel, DType::f32).value());
    store.open();
  }
  void write(size_t room, Pool where, float first) {
    store.begin_update(numbers[room], where, /*reads=*/false);
    const Tensor into = store.updating(numbers[room]);
    if (into.on_host()) {
      const std::vector<float> values = values_from(first, kNumel);
      std::copy(values.begin(), values.end(), into.data<float>());
    } else {
      context.upload<float>(values_from(first, kNumel), into);
    }
    store.end_update(numbers[room]);
  }
  std::vector<float> brought(size_t room, Interval elements) {
    const Tensor into = store.device_room(elements.size(), DType::f32, Category::parameters);
    context.stream->wait(store.bring(numbers[room], elements, into));
    return context.to_host<float>(into);
  }

  test::TempFolder folder;
  Context context;
  ParameterStore store;
  std::vector<size_t> numbers;
};

std::vector<Pool> update_places(const Place& place) {
  return place.guarded ? std::vector{Pool::device, Pool::host} : std::vector{Pool::device};
}

TEST(ParameterStore, what_an_update_wrote_comes_back_whole_and_in_parts) {
  for (const Place& place : kPlaces)
    for (const Pool where : update_places(place)) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", name_of(place.pool), place.guarded, name_of(where)));
      Stored of(place, 5);
      for (const float more : {0.F, 0.5F}) {
        for (size_t room = 0; room < 5; ++room) of.write(room, where, static_cast<float>(room) + more);
        for (size_t room = 0; room < 5; ++room) {
          const std::vector<float> all = values_from(static_cast<float>(room) + more, kNumel);
          EXPECT_EQ(of.brought(room, {0, kNumel}), all);
          EXPECT_EQ(of.brought(room, {777, 70'001}), std::vector<float>(all.begin() + 777, all.begin() + 70'001));
        }
      }
    }
}

TEST(ParameterStore, an_update_that_reads_starts_from_what_is_there_and_updates_nest) {
  for (const Place& place : kPlaces)
    for (const Pool where : update_places(place)) {
      Stored of(place, 1);
      of.write(0, where, 1);
      of.store.begin_update(0, where, /*reads=*/true);
      of.store.begin_update(0, where, /*reads=*/false);  // the first counts
      const Tensor tensor = of.store.updating(0);
      if (tensor.on_host()) {
        tensor.data<float>()[3] = -1;
      } else {
        of.context.upload<float>(std::array{-1.F}, tensor.flat(3, 4));
      }
      of.store.end_update(0);
      EXPECT_TRUE(of.store.updating(0)) << "the outer update goes on";
      of.store.end_update(0);
      EXPECT_FALSE(of.store.updating(0));
      EXPECT_EQ(of.brought(0, {2, 5}), (std::vector<float>{3, -1, 5}));
      EXPECT_THROW(of.store.end_update(0), Error);
    }
}

TEST(ParameterStore, one_update_is_written_back_while_another_is_made) {
  const int64_t bytes = round_up(4 * kNumel + 4096, 64);
  Stored of({Pool::file, false}, 5);
  const MemoryLedger& ledger = of.context.memory->ledger();
  for (size_t room = 0; room < 5; ++room) of.write(room, Pool::device, 0);
  EXPECT_EQ(ledger.peak(Category::parameters), 2 * bytes);
  EXPECT_EQ(ledger.current(Category::parameters), 2 * bytes);
  of.store.complete(1);
  EXPECT_EQ(ledger.current(Category::parameters), 2 * bytes) << "long done";
  of.store.complete(4);
  EXPECT_EQ(ledger.current(Category::parameters), bytes);
  of.store.settle();
  EXPECT_EQ(ledger.current(Category::parameters), 0);
  EXPECT_EQ(of.store.traffic(), (StateTraffic{.written = 5 * 4 * kNumel}));
}

TEST(ParameterStore, gaps_are_zero_wherever_an_update_is_made) {
  for (const Place& place : kPlaces)
    for (const Pool where : update_places(place)) {
      const test::TempFolder folder;
      const Context context = test::contexts_of(1, place.guarded).front();
      ParameterStore store(context, {.tier = {place.pool, folder.path().string()}}, "rank 0");
      const size_t number = store.add(64, DType::f32, {{10, 12}, {60, 64}}).value();
      store.open();
      context.run(Fill{.x = context.empty({64}, DType::f32, Category::parameters), .value = 7});  // freed at once
      store.begin_update(number, where, /*reads=*/false);
      store.end_update(number);
      const Tensor into = store.device_room(64, DType::f32, Category::parameters);
      context.stream->wait(store.bring(number, {0, 64}, into));
      const std::vector<float> values = context.to_host<float>(into);
      for (const size_t gap : {10, 11, 60, 63}) EXPECT_EQ(values[gap], 0);
    }
}

TEST(ParameterStore, the_first_rooms_that_fit_stay_in_memory) {
  for (const bool guarded : {false, true}) {
    const test::TempFolder folder;
    const Context context = test::contexts_of(1, guarded).front();
    ParameterStore store(context, {.tier = {Pool::file, folder.path().string()}, .in_memory = 250}, "rank 0");
    std::vector<bool> has_room;
    for (const int64_t numel : {100, 200, 150, 1}) has_room.push_back(store.add(numel, DType::bf16).has_value());
    store.open();
    EXPECT_EQ(has_room, guarded ? std::vector<bool>(4, true) : (std::vector<bool>{false, true, false, true}));
    EXPECT_EQ(context.memory->ledger().current(Category::parameters, Pool::file), 2 * kSwapGrid);
    EXPECT_EQ(context.memory->ledger().current(Category::parameters, Pool::host), guarded ? 256 + 320 : 0);
    EXPECT_THAT(store.note(),
                testing::HasSubstr("201 parameters of this rank are in a file in " + folder.path().string()));
  }
}

TEST(ParameterStore, counts_how_long_files_took_and_how_long_they_were_waited_for) {
  const test::TempFolder folder;
  const Context context = Context::cpu();
  const auto late = [](const SwapCall& call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return call.result;
  };
  const test::ScopedSwapFault scope(late);
  ParameterStore store(context, {.tier = {Pool::file, folder.path().string()}}, "rank 0");
  const size_t number = store.add(100, DType::f32).value();
  store.open();
  store.begin_update(number, Pool::device, /*reads=*/false);
  context.zero(store.updating(number));
  store.end_update(number);
  store.complete(number);
  const StateTimes written = store.times();
  EXPECT_GE(written.on_way, 0.03);
  EXPECT_GE(written.waited, 0.02) << "for the write";
  const Tensor into = store.device_room(100, DType::f32, Category::parameters);
  const auto arrival = store.bring(number, {0, 100}, into);
  while (!arrival.ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // other work
  store.await(arrival);
  const StateTimes hidden = store.times() - written;
  EXPECT_GE(hidden.on_way, 0.03);
  EXPECT_LT(hidden.waited, 0.01) << "it was there";
  store.await(store.bring(number, {0, 100}, into));
  const StateTimes exposed = store.times() - written - hidden;
  EXPECT_GE(exposed.on_way, 0.03);
  EXPECT_GE(exposed.waited, 0.02);
}

TEST(ParameterStore, says_where_all_fits_into_memory) {
  const test::TempFolder folder;
  ParameterStore store(Context::cpu(), {.tier = {Pool::file, folder.path().string()}, .in_memory = 99}, "rank 0");
  EXPECT_FALSE(store.add(99, DType::f32));
  store.open();
  EXPECT_EQ(store.note(), "no parameters of this rank are in files: offload_param.max_in_cpu = 99 holds them all");
}

TEST(ParameterStore, names_the_rank_and_what_the_file_holds_where_it_fails) {
  const Context context = Context::cpu();
  ParameterStore store(context, {.tier = {Pool::file, "/nowhere/deeper"}}, "rank 3");
  store.add(5, DType::f32);
  EXPECT_THAT(test::message_of<IoError>([&] { store.open(); }),
              testing::AllOf(testing::HasSubstr("rank 3 for parameters in /nowhere"), testing::HasSubstr("nvme_path")));
}

}  // namespace
}  // namespace nought::parameter_store_test
