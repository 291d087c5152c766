// Why there is a search here: the least room is NP-hard to find, and the best of four greedy orders leaves gaps, of up
// to 1.5 MiB, in 7 of the more than 70 layouts that tests/plan/agreement_test.cpp asks to have none. Simulated
// annealing from these orders closes them within a quarter of a second each. It runs only where a greedy order left a
// gap, once or a few times per run.
#include "nought/tensor/packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "nought/tensor/random.h"

namespace nought {

namespace {

int64_t most_alive(std::span<const Lifetime> blocks) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // (event, bytes); at one event, ends come before begins
  for (const Lifetime& block : blocks) {
    changes.emplace_back(block.begin, block.bytes);
    changes.emplace_back(block.end, -block.bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t alive = 0, most = 0;
  for (const auto& [event, bytes] : changes) most = std::max(most, alive += bytes);
  return most;
}

/// Places blocks in an order, each as low as it goes.
class Placement {
 public:
  explicit Placement(std::span<const Lifetime> blocks) : blocks_(blocks), offsets_(blocks.size()) {}

  /// What `before` has of the first `turns` blocks of this order, which is its order as well.
  void begin_as(const Placement& before, size_t turns) {
    placed_.clear(), bytes_ = 0;
    for (const Placed& each : before.placed_) {
      if (each.turn >= turns) continue;
      placed_.push_back(each);
      bytes_ = std::max(bytes_, each.top);
      offsets_[each.block] = each.offset;
    }
  }

  /// Places the blocks of an order from that turn on. Returns false as soon as they take more than `most` bytes.
  bool place(std::span<const size_t> order, size_t first = 0, int64_t most = std::numeric_limits<int64_t>::max()) {
    for (size_t turn = first; turn < order.size(); ++turn) {
      const Lifetime& block = blocks_[order[turn]];
      const int64_t offset = lowest_gap(block), top = offset + block.bytes;
      if (top > most) return false;
      bytes_ = std::max(bytes_, top);
      offsets_[order[turn]] = offset;
      const auto at = std::upper_bound(placed_.begin(), placed_.end(), offset,
                                       [](int64_t value, const Placed& other) { return value < other.offset; });
      placed_.insert(at, {block.begin, block.end, offset, top, turn, order[turn]});
    }
    return true;
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t bytes() const { return bytes_; }
  int64_t top_of(size_t block) const { return offsets_[block] + blocks_[block].bytes; }

 private:
  struct Placed {
    int64_t begin, end, offset, top;
    size_t turn, block;
  };

  /// Picks blocks that are in use together with this one from a few at a time, without a branch, which nobody could
  /// predict.
  int64_t lowest_gap(const Lifetime& block) const {
    constexpr size_t kAtOnce = 64;
    int64_t offset = 0;
    for (size_t begin = 0; begin < placed_.size(); begin += kAtOnce) {
      if (placed_[begin].offset >= offset + block.bytes) break;
      const size_t end = std::min(begin + kAtOnce, placed_.size());
      std::array<size_t, kAtOnce> met;
      size_t count = 0;
      for (size_t i = begin; i < end; ++i) {
        met[count] = i;
        count += static_cast<size_t>(block.begin < placed_[i].end) & static_cast<size_t>(placed_[i].begin < block.end);
      }
      for (size_t i = 0; i < count; ++i) {
        const Placed& other = placed_[met[i]];
        if (other.offset >= offset + block.bytes) return offset;
        offset = std::max(offset, other.top);
      }
    }
    return offset;
  }

  std::span<const Lifetime> blocks_;
  std::vector<Placed> placed_;  // by offset
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
};

/// Limits of one search for a better order: comparisons of two blocks, if all were made, and orders.
constexpr int64_t kSearch = 200'000'000, kMostOrders = 20'000;
/// How much worse a packing may be, about, and still be accepted at first: a fraction of the most that is alive.
constexpr double kWarmth = 0.002;

/// Simulated annealing, the same on every run. Each try moves one block to another place in the order; usually it is a
/// block that ends above the most that is alive. A packing that is not better is accepted by chance, less often with
/// each try. The best packing is kept.
void improve(std::span<const Lifetime> blocks, int64_t alive, std::vector<size_t> order, uint64_t seed, Packing& best) {
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t orders = std::min(kMostOrders, kSearch / (count * count + 1));
  Placement last(blocks), next(blocks);
  last.place(order);
  std::vector<size_t> above, moved;
  for (int64_t i = 0; i < orders && best.bytes > alive; ++i) {
    const Philox random = philox(seed, static_cast<uint64_t>(i));
    above.clear();
    for (size_t k = 0; k < order.size(); ++k)
      if (last.top_of(order[k]) > alive) above.push_back(k);
    const bool any = random[0] % 3 == 0 || above.empty();
    const size_t from = any ? random[1] % order.size() : above[random[1] % above.size()];
    const size_t to = random[2] % (random[0] % 3 == 2 ? from + 1 : order.size());
    moved = order;
    const auto at = [&](size_t turn) { return moved.begin() + static_cast<std::ptrdiff_t>(turn); };
    if (any) {
      std::swap(moved[from], moved[to]);
    } else if (to < from) {
      std::rotate(at(to), at(from), at(from) + 1);
    } else {
      std::rotate(at(from), at(from) + 1, at(to) + 1);
    }
    const double warmth =
        kWarmth * static_cast<double>(alive) * (1 - static_cast<double>(i) / static_cast<double>(orders)) + 1;
    const double least_chance = random[3] * 0x1p-32;
    next.begin_as(last, std::min(from, to));
    // One byte more than what is accepted, as rounding goes.
    const double most = static_cast<double>(last.bytes()) - warmth * std::log(least_chance) + 1;
    const auto most_bytes = most < 0x1p62 ? static_cast<int64_t>(most) : std::numeric_limits<int64_t>::max();
    if (!next.place(moved, std::min(from, to), most_bytes)) continue;
    const double chance = std::exp(static_cast<double>(last.bytes() - next.bytes()) / warmth);
    if (chance < 1 && chance <= least_chance) continue;
    if (next.bytes() < best.bytes) best = {.offsets = next.offsets(), .bytes = next.bytes()};
    std::swap(order, moved), std::swap(last, next);
  }
}

/// All blocks in an order.
Packing place(std::span<const Lifetime> blocks, std::span<const size_t> order) {
  Placement placement(blocks);
  placement.place(order);
  return {.offsets = placement.offsets(), .bytes = placement.bytes()};
}

}  // namespace

Packing pack(std::span<const Lifetime> blocks) {
  const int64_t alive = most_alive(blocks);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return blocks[i].end - blocks[i].begin; };
  Packing best = place(blocks, order);
  const auto sorted_by = [&](auto key) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    if (Packing packing = place(blocks, order); packing.bytes < best.bytes) best = std::move(packing);
    return order;
  };
  const std::array starts{
      sorted_by([&](size_t i) { return std::tuple(-length(i), -blocks[i].bytes); }),
      sorted_by([&](size_t i) { return std::tuple(-blocks[i].bytes, -length(i)); }),
      sorted_by([&](size_t i) { return std::tuple(-blocks[i].bytes * length(i), blocks[i].begin); }),
      sorted_by([&](size_t i) { return std::tuple(blocks[i].begin, -length(i)); }),
  };
  for (size_t i = 0; i < starts.size() && best.bytes > alive; ++i) improve(blocks, alive, starts[i], i, best);
  best.alive = alive;
  return best;
}

}  // namespace nought
