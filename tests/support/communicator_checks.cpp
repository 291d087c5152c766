#include "support/communicator_checks.h"

#include <numeric>

#include "support/host_tensors.h"
#include "support/rank_values.h"

namespace nought::test {
namespace {

/// The checks of one dtype and length. `ranks` are the ranks whose values the members hold, in group order.
template <class T>
class Check {
 public:
  Check(Communicator& communicator, const Context& context, int64_t length)
      : group_(communicator), context_(context), n_(length), rank_(communicator.rank()), size_(communicator.size()) {}

  void run() {
    for (int root : {0, size_ - 1}) {
      broadcast(root);
      gather(root);
    }
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      all_reduce(op);
      reduce_scatter(op, /*in_place=*/false);
    }
    reduce_scatter(ReduceOp::sum, /*in_place=*/true);
    if constexpr (sizeof(T) >= sizeof(float)) {  // some transports round narrower sums of pairs
      all_reduce(ReduceOp::pairwise_sum);
      reduce_scatter(ReduceOp::pairwise_sum, /*in_place=*/true);
    }
    all_gather(/*in_place=*/false);
    all_gather(/*in_place=*/true);
    all_to_all();
    all_to_all_v("rows of all sizes",
                 [&](int from, int to) { return (from + to) % 4 == 3 ? 0 : (from + 2 * to + n_) % 7; });
    all_to_all_v("rows for one rank", [&](int, int to) { return to == size_ - 1 ? n_ : 0; });
    all_to_all_v("rows of one rank", [&](int from, int) { return from == size_ / 2 ? n_ : 0; });
    all_to_all_v("no rows", [](int, int) { return 0; });
    group_.barrier().wait();
  }

  /// Once what cuts a long tensor.
  void run_long() {
    broadcast(0);
    all_reduce(ReduceOp::sum);
    reduce_scatter(ReduceOp::sum, /*in_place=*/true);
    all_gather(/*in_place=*/false);
    all_to_all_v("many rows", [&](int from, int to) { return from == to ? 0 : n_ / (1 + from + 3 * to); });
  }

 private:
  std::vector<T> values(int rank, int64_t n) const { return values_of<T>(rank, n); }
  Tensor tensor(const std::vector<T>& values) const { return tensor_of(context_, values); }
  Tensor empty(int64_t n) const { return context_.zeros({n}, dtype_of_v<T>); }
  std::vector<T> all_values(int64_t n) const {
    std::vector<T> all;
    for (int rank = 0; rank < size_; ++rank) {
      const std::vector<T> part = values(rank, n);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  void broadcast(int root) {
    const Tensor x = tensor(values(rank_, n_));
    group_.broadcast(x, root).wait();
    expect_same("broadcast", x, values(root, n_));
  }

  void gather(int root) {
    const Tensor in = tensor(values(rank_, n_));
    const Tensor out = rank_ == root ? empty(n_ * size_) : Tensor();
    group_.gather(in, out, root).wait();
    if (rank_ == root) expect_same("gather", out, all_values(n_));
  }

  void all_reduce(ReduceOp op) {
    const Tensor x = tensor(values(rank_, n_));
    group_.all_reduce(x, op).wait();
    expect_same("all_reduce", x, reduced_of<T>(all_ranks(size_), n_, op));
  }

  void reduce_scatter(ReduceOp op, bool in_place) {
    const Tensor full = tensor(values(rank_, n_ * size_));
    const Tensor shard = in_place ? full.flat(rank_ * n_, (rank_ + 1) * n_) : empty(n_);
    group_.reduce_scatter(full, shard, op).wait();
    expect_same(in_place ? "reduce_scatter in place" : "reduce_scatter", shard,
                part_of(reduced_of<T>(all_ranks(size_), n_ * size_, op), rank_, n_));
  }

  void all_gather(bool in_place) {
    const Tensor full = empty(n_ * size_);
    const Tensor mine = tensor(values(rank_, n_));
    const Tensor shard = in_place ? full.flat(rank_ * n_, (rank_ + 1) * n_) : mine;
    if (in_place) test::copy(mine, shard);
    group_.all_gather(shard, full).wait();
    expect_same(in_place ? "all_gather in place" : "all_gather", full, all_values(n_));
  }

  void all_to_all() {
    const Tensor in = tensor(values(rank_, n_ * size_));
    const Tensor out = empty(n_ * size_);
    group_.all_to_all(in, out).wait();
    std::vector<T> expected;
    for (int rank = 0; rank < size_; ++rank) {
      const std::vector<T> part = part_of(values(rank, n_ * size_), rank_, n_);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    expect_same("all_to_all", out, expected);
  }

  /// count(from, to): the rows of 3 values that one rank sends to another.
  template <class Count>
  void all_to_all_v(std::string_view what, const Count& count) {
    constexpr int64_t kWidth = 3;
    RowCounts counts;
    std::vector<T> expected;
    for (int peer = 0; peer < size_; ++peer) {
      counts.sent.push_back(count(rank_, peer)), counts.received.push_back(count(peer, rank_));
      int64_t begin = 0, end = 0;  // of the peer's rows for this rank
      for (int to = 0; to <= rank_; ++to) begin = end, end += count(peer, to);
      const std::vector<T> sent = values(peer, end * kWidth);
      expected.insert(expected.end(), sent.begin() + begin * kWidth, sent.end());
    }
    const int64_t rows = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
    const Tensor in = tensor(values(rank_, rows * kWidth)).reshape({rows, kWidth});
    const Tensor out = empty(static_cast<int64_t>(expected.size())).reshape({std::ssize(expected) / kWidth, kWidth});
    const Traffic before = group_.traffic();
    group_.all_to_all_v(in, out, counts).wait();
    expect_same(fmt::format("all_to_all_v of {}", what), out, expected);
    const int64_t left =
                      group_.traffic()[Collective::all_to_all_v].elements - before[Collective::all_to_all_v].elements,
                  others = (rows - count(rank_, rank_)) * kWidth;
    require(left == others, "all_to_all_v of {} counted {} elements, {} left the rank", what, left, others);
  }

  Communicator& group_;
  const Context& context_;
  int64_t n_;
  int rank_, size_;
};

}  // namespace

void check_collectives(Communicator& communicator, const Context& context) {
  constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8};
  for (DType dtype : kDTypes) {
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t length : {0, 1, 3, 17, 1000, 4099}) Check<T>(communicator, context, length).run();
    });
  }
  // Longer than one segment of the reductions (shorter in larger groups: there the segments are), and of odd length.
  const int64_t length = communicator.size() <= 4 ? 300001 : 70001;
  Check<float>(communicator, context, length).run_long();
  Check<bf16_t>(communicator, context, length).run_long();
}

void check_overlap(Communicator& communicator, const Context& context) {
  const int rank = communicator.rank(), size = communicator.size();
  constexpr int64_t kLength = 20011;
  std::vector<Tensor> sums, gathered;
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i) {
    sums.push_back(tensor_of(context, values_of<float>(rank, kLength + i)));
    events.push_back(communicator.all_reduce(sums.back()));
    gathered.push_back(context.zeros({(kLength + i) * size}, DType::f32));
    // Its input is freed here, before the collective ran: the Event must keep it alive.
    events.push_back(communicator.all_gather(tensor_of(context, values_of<float>(rank, kLength + i)), gathered.back()));
  }
  for (size_t i = events.size(); i-- > 0;) events[i].wait();
  for (int64_t i = 0; i < 8; ++i) {
    const auto index = static_cast<size_t>(i);
    expect_same("overlapped all_reduce", sums[index], reduced_of<float>(all_ranks(size), kLength + i, ReduceOp::sum));
    for (int peer = 0; peer < size; ++peer) {
      expect_same("overlapped all_gather", gathered[index].flat(peer * (kLength + i), (peer + 1) * (kLength + i)),
                  values_of<float>(peer, kLength + i));
    }
  }
}

void check_split(Communicator& communicator, const Context& context) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto check_sum = [&](Communicator& group, const std::vector<int>& members) {
    require(group.size() == static_cast<int>(members.size()) && members[static_cast<size_t>(group.rank())] == rank,
            "rank {} of {} became rank {} of {}", rank, size, group.rank(), group.size());
    const Tensor x = tensor_of(context, values_of<bf16_t>(rank, 1237));
    group.all_reduce(x).wait();
    expect_same("all_reduce in a subgroup", x, reduced_of<bf16_t>(members, 1237, ReduceOp::sum));
  };
  std::vector<int> parity, reversed, quarter;
  for (int peer = 0; peer < size; ++peer) {
    if (peer % 2 == rank % 2) parity.push_back(peer);
    if (peer % 2 == rank % 2 && (peer / 2) % 2 == (rank / 2) % 2) quarter.push_back(peer);
    reversed.insert(reversed.begin(), peer);
  }
  const auto by_parity = communicator.split(rank % 2, 0);
  const auto backwards = communicator.split(0, -rank);
  const auto by_quarter = by_parity->split((rank / 2) % 2, 0);
  const auto alone = communicator.split(rank, 0);
  check_sum(*by_parity, parity);
  check_sum(*backwards, reversed);
  check_sum(*by_quarter, quarter);
  check_sum(*alone, {rank});
  check_sum(communicator, all_ranks(size));
}

void check_independent_groups(Communicator& communicator, const Context& context) {
  const int rank = communicator.rank(), size = communicator.size();
  constexpr int64_t kShort = 1237, kLong = 200003;  // one chunk, and several windows full
  const auto first = communicator.split(0, rank), second = communicator.split(0, rank);
  for (const int64_t length : {kShort, kLong})
    for (int round = 0; round < 4; ++round) {
      const auto sums_in = [&](Communicator& group, int seed, std::vector<Tensor>& sums, std::vector<Event>& events) {
        for (int i = 0; i < 3; ++i) {
          sums.push_back(tensor_of(context, values_of<float>(100 * seed + rank, length)));
          events.push_back(group.all_reduce(sums.back()));
        }
      };
      std::vector<Tensor> a, b;
      std::vector<Event> events;
      // Neighbours go in opposite orders, so each waits in a group while the other one waits in the other group.
      if (rank % 2 == 0) sums_in(*first, 1, a, events), sums_in(*second, 2, b, events);
      if (rank % 2 == 1) sums_in(*second, 2, b, events), sums_in(*first, 1, a, events);
      for (const Event& event : events) event.wait();
      for (int seed : {1, 2}) {
        std::vector<int> ranks;
        for (int peer = 0; peer < size; ++peer) ranks.push_back(100 * seed + peer);
        const std::vector<float> expected = reduced_of<float>(ranks, length, ReduceOp::sum);
        for (const Tensor& sum : seed == 1 ? a : b) expect_same("all_reduce in one of two groups", sum, expected);
      }
    }
  if (size == 1) return;
  // On rank 0 the communicator is blocked by a receive, until rank 1 has met rank 0 in another group.
  const Tensor news = rank == 0 ? context.zeros({kShort}, DType::f32) : tensor_of(context, values_of<float>(1, kShort));
  Event arrival;
  if (rank == 0) arrival = communicator.recv(news, 1);
  first->barrier().wait();
  if (rank == 1) communicator.send(news, 0).wait();
  arrival.wait();
  expect_same("recv behind which a barrier of another group went by", news, values_of<float>(1, kShort));
}

void check_send_recv(Communicator& communicator, const Context& context) {
  const int rank = communicator.rank(), size = communicator.size();
  if (size == 1) return;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  constexpr int64_t kLengths[] = {5, 300001};  // one that a network buffers, one that it does not
  for (int64_t length : kLengths) {
    // Only one rank of the ring sends first: the others would wait for each other.
    const Tensor sent = tensor_of(context, values_of<float>(rank, length)), got = context.zeros({length}, DType::f32);
    const auto receive = [&] { communicator.recv(got, previous).wait(); };
    if (rank != 0) receive();
    communicator.send(sent, next).wait();
    context.zero(sent);
    if (rank == 0) receive();
    expect_same("recv of a message", got, values_of<float>(previous, length));
    // All send at once.
    const Tensor goes = tensor_of(context, values_of<float>(rank, length)), comes = context.zeros({length}, DType::f32);
    communicator.send_recv(goes, next, comes, previous, 3).wait();
    context.zero(goes);
    expect_same("recv of what goes round a ring", comes, values_of<float>(previous, length));
  }
}

void check_traffic(Communicator& communicator, const Context& context) {
  const int64_t rank = communicator.rank(), size = communicator.size();
  const int64_t part = 1024, whole = part * size;  // divisible: the formulas are exact
  const Tensor full = context.zeros({whole}, DType::bf16), other = context.zeros({whole}, DType::bf16);
  const Tensor shard = context.zeros({part}, DType::bf16);
  const Traffic before = communicator.traffic();
  communicator.all_gather(shard, full);
  communicator.reduce_scatter(full, shard);
  communicator.all_reduce(full);
  communicator.all_to_all(full, other);
  // To each rank as many rows as its number says, from each as many as this rank's.
  RowCounts counts{{}, std::vector<int64_t>(static_cast<size_t>(size), rank)};
  for (int64_t peer = 0; peer < size; ++peer) counts.sent.push_back(peer);
  communicator.all_to_all_v(context.zeros({size * (size - 1) / 2, 8}, DType::bf16),
                            context.zeros({size * rank, 8}, DType::bf16), counts);
  communicator.broadcast(full, 0);
  communicator.gather(shard, full, 0);
  const Traffic after = communicator.traffic();
  int64_t total = 0;
  const auto expect = [&](Collective::Kind collective, int64_t elements) {
    const int64_t sent = after[collective].elements - before[collective].elements;
    const int64_t bytes = after[collective].bytes - before[collective].bytes;
    require(sent == elements && bytes == 2 * elements && after[collective].calls == before[collective].calls + 1,
            "{} on rank {} of {} counted {} elements and {} bytes, expected {} elements", name_of(collective), rank,
            size, sent, bytes, elements);
    total += elements;
  };
  expect(Collective::all_gather, (size - 1) * part);
  expect(Collective::reduce_scatter, (size - 1) * part);
  expect(Collective::all_reduce, 2 * (size - 1) * part);
  expect(Collective::all_to_all, (size - 1) * part);
  expect(Collective::all_to_all_v, 8 * (size * (size - 1) / 2 - rank));
  expect(Collective::broadcast, rank == 0 ? (size - 1) * whole : 0);
  expect(Collective::gather, rank == 0 ? 0 : part);
  require(after.total_elements() - before.total_elements() == total, "the total counts {} elements, expected {}",
          after.total_elements() - before.total_elements(), total);
  communicator.barrier().wait();
}

void check_workspace(Communicator& communicator, const Context& context) {
  const Tensor x = context.zeros({6 << 20}, DType::f32, Category::gradients);  // 24 MiB
  MemoryLedger& ledger = context.memory->ledger();
  const int64_t before = ledger.current(Category::communication);
  ledger.reset_peaks();
  communicator.all_reduce(x).wait();
  require(ledger.current(Category::communication) == before, "{} bytes of communication buffers are left",
          ledger.current(Category::communication) - before);
  require(ledger.peak(Category::communication) <= 8 << 20, "communication buffers of {} bytes for a tensor of {}",
          ledger.peak(Category::communication), x.bytes());
}

}  // namespace nought::test
