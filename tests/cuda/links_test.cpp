// Collectives over the links of devices: what the other backends compute, with the same bits, and as many bytes.
#include <cmath>
#include <limits>
#include <numeric>

#include "cuda/linked_ranks.h"
#include "support/rank_values.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::links_test {
namespace {

using test::reduced_of;
using test::values_of;

/// Tensors of the device that hold what ranks hold.
template <class T>
class OnDevice {
 public:
  OnDevice(Communicator& group, const Context& context)
      : group_(group), context_(context), rank_(group.rank()), size_(group.size()) {}

  Tensor upload(const std::vector<T>& values) const {
    return context_.upload<T>({std::ssize(values)}, values, Category::activations);
  }
  Tensor empty(int64_t n) const { return context_.empty({n}, dtype_of_v<T>); }
  void wait(const Event& event) const { group_.wait(event, *context_.stream); }
  void expect(std::string_view what, const Tensor& got, const std::vector<T>& expected) const {
    const std::vector<T> values = context_.to_host<T>(got);
    require(values.size() == expected.size(), "{}: {} elements, expected {}", what, values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i)
      require(std::memcmp(&values[i], &expected[i], sizeof(T)) == 0,
              "{} of {} {} on rank {} of {}: element {} is {}, expected {}", what, values.size(),
              name_of(dtype_of_v<T>), rank_, size_, i, static_cast<double>(values[i]),
              static_cast<double>(expected[i]));
  }
  std::vector<T> all_values(int64_t n) const {
    std::vector<T> all;
    for (int rank = 0; rank < size_; ++rank)
      for (const T value : values_of<T>(rank, n)) all.push_back(value);
    return all;
  }
  std::vector<T> reduced(int64_t n, ReduceOp op) const { return reduced_of<T>(test::all_ranks(size_), n, op); }

  void check_movements(int64_t n) const {
    for (const int root : {0, size_ - 1}) {
      const Tensor x = upload(values_of<T>(rank_, n));
      wait(group_.broadcast(x, root));
      expect("broadcast", x, values_of<T>(root, n));
      const Tensor gathered = rank_ == root ? empty(n * size_) : Tensor();
      wait(group_.gather(upload(values_of<T>(rank_, n)), gathered, root));
      if (rank_ == root) expect("gather", gathered, all_values(n));
    }
    for (const bool in_place : {false, true}) {
      const Tensor full = empty(n * size_), own = upload(values_of<T>(rank_, n));
      const Tensor shard = in_place ? full.flat(rank_ * n, (rank_ + 1) * n) : own;
      if (in_place) context_.copy(own, shard);
      wait(group_.all_gather(shard, full));
      expect("all_gather", full, all_values(n));
    }
    check_exchanges(n);
  }

  void check_exchanges(int64_t n) const {
    const Tensor out = empty(n * size_);
    wait(group_.all_to_all(upload(values_of<T>(rank_, n * size_)), out));
    std::vector<T> expected;
    for (int from = 0; from < size_; ++from)
      for (const T value : test::part_of(values_of<T>(from, n * size_), rank_, n)) expected.push_back(value);
    expect("all_to_all", out, expected);

    // Rows of 3 elements; some ranks send nothing to some.
    const auto rows = [&](int from, int to) {
      return int64_t{(from + 2 * to) % 3 == 1 ? 0 : (from + to + 1) * (n % 5)};
    };
    RowCounts counts;
    int64_t sent = 0, received = 0;
    std::vector<T> came;
    for (int peer = 0; peer < size_; ++peer) {
      counts.sent.push_back(rows(rank_, peer)), counts.received.push_back(rows(peer, rank_));
      sent += rows(rank_, peer), received += rows(peer, rank_);
      int64_t begin = 0, end = 0;
      for (int to = 0; to <= rank_; ++to) begin = end, end += rows(peer, to);
      const std::vector<T> of_peer = values_of<T>(peer, 3 * end);
      came.insert(came.end(), of_peer.begin() + 3 * begin, of_peer.end());
    }
    const Tensor in = upload(values_of<T>(rank_, 3 * sent)).reshape({sent, 3}), to = empty(3 * received);
    wait(group_.all_to_all_v(in, to.reshape({received, 3}), counts));
    expect("all_to_all_v", to, came);
  }

  void check_reductions(int64_t n) const {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      const Tensor x = upload(values_of<T>(rank_, n));
      wait(group_.all_reduce(x, op));
      expect("all_reduce", x, reduced(n, op));
      for (const bool in_place : {false, true}) {
        const Tensor full = upload(values_of<T>(rank_, n * size_));
        const Tensor shard = in_place ? full.flat(rank_ * n, (rank_ + 1) * n) : empty(n);
        wait(group_.reduce_scatter(full, shard, op));
        expect("reduce_scatter", shard, test::part_of(reduced(n * size_, op), rank_, n));
      }
    }
  }

 private:
  Communicator& group_;
  const Context& context_;
  int rank_, size_;
};

/// Half of the distance between 1 and the next number.
double half_step(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : dtype == DType::f32 ? 0x1p-24 : 0x1p-53;
}

template <class F>
void for_each_dtype(const F& f) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8, DType::i8})
    visit_dtype(dtype, [&](auto tag) { f(typename decltype(tag)::type()); });
}

class LinkedRanks : public ::testing::TestWithParam<int> {};

TEST_P(LinkedRanks, collectives_have_the_bits_of_the_order_of_ranks) {
  NOUGHT_NEEDS_DEVICES(GetParam());
  test::run_linked(GetParam(), [](Communicator& world, const Context& context) {
    for_each_dtype([&](auto value) {
      const OnDevice<decltype(value)> check(world, context);
      for (const int64_t n : {0, 1, 3, 17, 259}) check.check_movements(n), check.check_reductions(n);
    });
  });
}

TEST_P(LinkedRanks, long_reductions_are_cut_to_the_room_that_they_have) {
  NOUGHT_NEEDS_DEVICES(GetParam());
  LinkOptions options = test::linked_always();
  options.room_bytes = 4096;
  const auto body = [&](Communicator& world, const Context& context) {
    MemoryLedger& ledger = context.memory->ledger();
    const int64_t before = ledger.current(Category::communication);
    ledger.reset_peaks();
    OnDevice<float>(world, context).check_reductions(5003);
    OnDevice<bf16_t>(world, context).check_reductions(5003);
    context.stream->synchronize();
    require(ledger.current(Category::communication) == before, "rooms are left");
    require(ledger.peak(Category::communication) <= before + 3 * 4096, "rooms of {} bytes",
            ledger.peak(Category::communication));
  };
  test::run_linked(GetParam(), body, options);
}

TEST_P(LinkedRanks, sums_of_the_library_are_exact_on_integers_and_within_their_roundings_on_floats) {
  NOUGHT_NEEDS_DEVICES(GetParam());
  const auto body = [](Communicator& world, const Context& context) {
    constexpr int64_t kCount = 1003;
    for_each_dtype([&](auto value) {
      using T = decltype(value);
      const OnDevice<T> check(world, context);
      const auto compare = [&](std::string_view what, const Tensor& got, const std::vector<T>& want) {
        if constexpr (std::is_integral_v<T>) return check.expect(what, got, want);
        const std::vector<double> values = context.to_host<double>(got);
        for (size_t i = 0; i < want.size(); ++i)  // of magnitudes up to 128 each, rounded at every hop
          require(std::abs(values[i] - static_cast<double>(want[i])) <= world.size() * 512 * half_step(got.dtype()),
                  "{}: element {} is {}, expected {}", what, i, values[i], static_cast<double>(want[i]));
      };
      const Tensor x = check.upload(values_of<T>(world.rank(), kCount)), again = check.empty(kCount);
      context.copy(x, again);
      check.wait(world.all_reduce(x));
      compare("all_reduce", x, check.reduced(kCount, ReduceOp::sum));
      check.wait(world.all_reduce(again));
      check.expect("the same again", again, context.to_host<T>(x));
      const Tensor full = check.upload(values_of<T>(world.rank(), kCount * world.size())), shard = check.empty(kCount);
      check.wait(world.reduce_scatter(full, shard));
      compare("reduce_scatter", shard,
              test::part_of(check.reduced(kCount * world.size(), ReduceOp::sum), world.rank(), kCount));
    });
  };
  test::run_linked(GetParam(), body, test::linked_with_library_sums());
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinkedRanks, ::testing::Range(2, 5));

TEST(Links, max_and_min_keep_nan) {
  NOUGHT_NEEDS_DEVICES(3);
  test::run_linked(3, [](Communicator& world, const Context& context) {
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      std::vector<float> values(3, 0.5f);
      values[static_cast<size_t>(world.rank())] = std::numeric_limits<float>::quiet_NaN();
      const Tensor x = context.upload<float>({3}, values, Category::activations);
      world.wait(world.all_reduce(x, op), *context.stream);
      for (const float value : context.to_host<float>(x)) require(std::isnan(value), "a NaN became {}", value);
    }
  });
}

TEST(Links, collectives_in_flight_keep_their_tensors_and_come_in_order) {
  NOUGHT_NEEDS_DEVICES(3);
  test::run_linked(3, [](Communicator& world, const Context& context) {
    const OnDevice<float> check(world, context);
    std::vector<Tensor> sums, gathered;
    std::vector<Event> events;
    for (int64_t n = 101; n < 107; ++n) {
      sums.push_back(check.upload(values_of<float>(world.rank(), n)));
      events.push_back(world.all_reduce(sums.back()));
      gathered.push_back(check.empty(n * world.size()));
      // What is sent is freed here, and what is allocated next may lie there.
      events.push_back(world.all_gather(check.upload(values_of<float>(world.rank(), n)), gathered.back()));
    }
    for (size_t i = events.size(); i-- > 0;) check.wait(events[i]);
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t n = 101 + static_cast<int64_t>(i);
      check.expect("all_reduce in flight", sums[i], check.reduced(n, ReduceOp::sum));
      check.expect("all_gather in flight", gathered[i], check.all_values(n));
    }
  });
}

TEST(Links, groups_that_are_split_off_are_linked_too) {
  NOUGHT_NEEDS_DEVICES(4);
  test::run_linked(4, [](Communicator& world, const Context& context) {
    const auto parity = world.split(world.rank() % 2, 0), backwards = world.split(0, -world.rank());
    const auto alone = world.split(world.rank(), 0);
    const auto pair = backwards->split(backwards->rank() / 2, 0);
    const auto expect_sum = [&](Communicator& group, const std::vector<int>& members) {
      const OnDevice<bf16_t> check(group, context);
      const Tensor x = check.upload(values_of<bf16_t>(world.rank(), 237));
      check.wait(group.all_reduce(x));
      check.expect("a group's sum", x, reduced_of<bf16_t>(members, 237, ReduceOp::sum));
    };
    const int other = (world.rank() + 2) % 4;
    expect_sum(*parity, {std::min(world.rank(), other), std::max(world.rank(), other)});
    expect_sum(*backwards, {3, 2, 1, 0});
    expect_sum(*pair, world.rank() >= 2 ? std::vector<int>{3, 2} : std::vector<int>{1, 0});
    expect_sum(*alone, {world.rank()});
    // What one group has formed goes on in another, and no host waits in between.
    const OnDevice<float> check(world, context);
    const Tensor x = check.upload(values_of<float>(world.rank(), 99));
    parity->all_reduce(x);
    const Event summed = parity->all_reduce(x);
    backwards->follow(summed);
    const Tensor all = check.empty(4 * 99);
    check.wait(backwards->all_gather(x, all));
    check.wait(summed);
    const std::vector<float> ends = context.to_host<float>(all);
    require(std::equal(ends.begin(), ends.begin() + 99, ends.begin() + 2 * 99), "ranks 3 and 1 have one sum");
  });
}

TEST(Links, messages_meet_their_receives_with_and_without_tags) {
  NOUGHT_NEEDS_DEVICES(3);
  test::run_linked(3, [](Communicator& world, const Context& context) {
    const OnDevice<float> check(world, context);
    const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
    const auto mine = [&](int64_t n) { return check.upload(values_of<float>(world.rank(), n)); };
    for (const int64_t n : {1, 1003}) {
      const Tensor round = check.empty(n);
      check.wait(world.send_recv(mine(n), next, round, previous));
      check.expect("what goes round a ring", round, values_of<float>(previous, n));
      // Along the ranks: each passes on when it has received.
      const Tensor chain = world.rank() == 0 ? mine(n) : check.empty(n);
      if (world.rank() > 0) check.wait(world.recv(chain, previous));
      if (world.rank() < 2) check.wait(world.send(chain, next));
      check.expect("what goes along a chain", chain, values_of<float>(0, n));
      const Tensor tagged = check.empty(n);
      check.wait(world.send_recv(mine(n), next, tagged, previous, 1));
      check.expect("what has a tag", tagged, values_of<float>(previous, n));
    }
  });
}

TEST(Links, tensors_of_the_host_go_as_they_went_before) {
  NOUGHT_NEEDS_DEVICES(2);
  test::run_linked(2, [](Communicator& world, const Context& context) {
    const Tensor pinned = test::tensor_of(context, values_of<float>(world.rank(), 33));
    world.all_reduce(pinned).wait();
    test::expect_same("pinned memory", pinned, reduced_of<float>({0, 1}, 33, ReduceOp::sum));
    world.barrier().wait();
  });
}

/// What ranks count, by collective.
std::vector<int64_t> counted(const LinkOptions& options) {
  std::vector<int64_t> numbers(4 * kNumCollectives);
  const auto body = [&](Communicator& world, const Context& context) {
    const OnDevice<bf16_t> check(world, context);
    check.check_movements(35);
    if (!options.library_sums) check.check_reductions(35);
    const Tensor out = check.empty(7);
    check.wait(world.send_recv(check.upload(values_of<bf16_t>(0, 7)), (world.rank() + 1) % world.size(), out,
                               (world.rank() + world.size() - 1) % world.size()));
    for (int i = 0; world.rank() == 1 && i < kNumCollectives; ++i) {
      const Traffic::Count count = world.traffic()[static_cast<Collective::Kind>(i)];
      const auto at = static_cast<size_t>(3 * i);
      numbers[at] = count.bytes, numbers[at + 1] = count.elements, numbers[at + 2] = count.calls;
    }
  };
  test::run_linked(3, body, options);
  return numbers;
}

TEST(Links, traffic_is_counted_as_on_the_host) {
  NOUGHT_NEEDS_DEVICES(3);
  const std::vector<int64_t> linked = counted(test::linked_always());
  EXPECT_EQ(linked, counted(test::not_linked()));
  EXPECT_GT(std::accumulate(linked.begin(), linked.end(), int64_t{0}), 0);
}

TEST(Links, timelines_have_collectives_when_the_device_gets_there) {
  NOUGHT_NEEDS_DEVICES(2);
  test::run_linked(2, [](Communicator& world, const Context& context) {
    const auto timeline = std::make_shared<Timeline>();
    timeline->follow(context.stream);
    world.record(timeline);
    timeline->start();
    const OnDevice<float> check(world, context);
    const Tensor x = check.upload(values_of<float>(world.rank(), 100));
    check.wait(world.all_reduce(x));
    check.wait(world.broadcast(x, 0));
    check.expect("the sum", x, check.reduced(100, ReduceOp::sum));
    std::vector<TraceEvent> events = timeline->take();
    std::erase_if(events, [](const TraceEvent& event) { return event.kind != TraceEventKind::collective; });
    require(events.size() == 2 && events[0].name == "all_reduce" && events[1].name == "broadcast", "{} collectives",
            events.size());
    require(events[0].begin <= events[0].end && events[0].end <= events[1].end, "collectives are not in order");
    require(events[0].bytes == 400 && events[0].group == "world", "{} bytes in {}", events[0].bytes, events[0].group);
  });
}

}  // namespace
}  // namespace nought::links_test
