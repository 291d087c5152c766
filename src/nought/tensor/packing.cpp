// Why there is a search here: the least room is NP-hard to find, and the best of four greedy orders leaves gaps, of up
// to 1.5 MiB, in 7 of the more than 70 layouts that tests/plan/agreement_test.cpp asks to have none. Simulated
// annealing from these orders closes them within a quarter of a second each. It runs only where a greedy order left a
// gap, once or a few times per run.
#include "nought/tensor/packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "nought/tensor/random.h"

namespace nought {

namespace {

bool together(const Lifetime& a, const Lifetime& b) { return a.begin < b.end && b.begin < a.end; }

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

/// Places the blocks in the given order, each as low as it goes.
Packing place(std::span<const Lifetime> blocks, std::span<const size_t> order) {
  Packing packing{.offsets = std::vector<int64_t>(blocks.size()), .bytes = 0, .alive = 0};
  std::vector<size_t> placed;  // by offset
  for (const size_t each : order) {
    const Lifetime& block = blocks[each];
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!together(block, blocks[other])) continue;
      if (packing.offsets[other] >= offset + block.bytes) break;
      offset = std::max(offset, packing.offsets[other] + blocks[other].bytes);
    }
    packing.offsets[each] = offset;
    packing.bytes = std::max(packing.bytes, offset + block.bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t value, size_t other) { return value < packing.offsets[other]; });
    placed.insert(at, each);
  }
  return packing;
}

/// Limits of one search for a better order: comparisons of two blocks, which take a quarter of a second, and orders.
constexpr int64_t kSearch = 200'000'000, kMostOrders = 20'000;
/// How much worse a packing may be, about, and still be accepted at first: a fraction of the most that is alive.
constexpr double kWarmth = 0.002;

/// Simulated annealing, the same on every run. Each try moves one block to another place in the order; usually it is a
/// block that ends above the most that is alive. A packing that is not better is accepted by chance, less often with
/// each try. The best packing is kept.
void improve(std::span<const Lifetime> blocks, int64_t alive, std::vector<size_t> order, uint64_t seed, Packing& best) {
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t orders = std::min(kMostOrders, kSearch / (count * count + 1));
  Packing last = place(blocks, order);
  for (int64_t i = 0; i < orders && best.bytes > alive; ++i) {
    const Philox random = philox(seed, static_cast<uint64_t>(i));
    std::vector<size_t> above;
    for (size_t k = 0; k < order.size(); ++k)
      if (last.offsets[order[k]] + blocks[order[k]].bytes > alive) above.push_back(k);
    const bool any = random[0] % 3 == 0 || above.empty();
    const size_t from = any ? random[1] % order.size() : above[random[1] % above.size()];
    const size_t to = random[2] % (random[0] % 3 == 2 ? from + 1 : order.size());
    std::vector<size_t> next = order;
    const auto at = [&](size_t turn) { return next.begin() + static_cast<std::ptrdiff_t>(turn); };
    if (any) {
      std::swap(next[from], next[to]);
    } else if (to < from) {
      std::rotate(at(to), at(from), at(from) + 1);
    } else {
      std::rotate(at(from), at(from) + 1, at(to) + 1);
    }
    Packing packing = place(blocks, next);
    const double warmth =
        kWarmth * static_cast<double>(alive) * (1 - static_cast<double>(i) / static_cast<double>(orders)) + 1;
    const double chance = std::exp(static_cast<double>(last.bytes - packing.bytes) / warmth);
    if (chance < 1 && chance <= random[3] * 0x1p-32) continue;
    if (packing.bytes < best.bytes) best = packing;
    order = std::move(next), last = std::move(packing);
  }
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
