#include "nought/data/answer_packing.h"

#include <algorithm>
#include <numeric>

#include "nought/base/math.h"

namespace nought {

AnswerPacking::Parts AnswerPacking::spread(std::span<const int64_t> lengths, int64_t micro_batches,
                                           int64_t& most) const {
  const auto count = static_cast<size_t>(micro_batches * layout_.world_size);
  std::vector<int64_t> order(lengths.size()), tokens(count);
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int64_t place) { return lengths[static_cast<size_t>(place)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  Parts parts(count);
  for (const int64_t place : order) {
    const auto part = static_cast<size_t>(std::min_element(tokens.begin(), tokens.end()) - tokens.begin());
    tokens[part] += length(place);
    parts[part].push_back(place);
  }
  for (std::vector<int64_t>& part : parts) std::sort(part.begin(), part.end());
  most = *std::max_element(tokens.begin(), tokens.end());
  return parts;
}

AnswerPacking::Parts AnswerPacking::pack(std::span<const int64_t> lengths, int64_t tokens, int64_t& most) const {
  // Fewer micro-batches have no room whatever the order is.
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t least = std::max<int64_t>(ceil_div(all, std::max<int64_t>(tokens, 1) * layout_.world_size), 1);
  for (int64_t count = whole_accumulation_ ? layout_.accumulation : least; count <= layout_.accumulation; ++count) {
    Parts parts = spread(lengths, count, most);
    if (most <= tokens) return parts;
  }
  // As many to each part as the layout says: these have room whatever their lengths are.
  Parts parts(static_cast<size_t>(layout_.accumulation * layout_.world_size));
  most = 0;
  for (size_t part = 0, next = 0; part < parts.size(); ++part) {
    int64_t sum = 0;
    for (int64_t i = 0; i < layout_.micro_batch && next < lengths.size(); ++i, ++next)
      parts[part].push_back(static_cast<int64_t>(next)), sum += lengths[next];
    most = std::max(most, sum);
  }
  return parts;
}

BatchLayout AnswerPacking::layout_of(const Parts& parts) const {
  BatchLayout layout = layout_;
  layout.accumulation = std::ssize(parts) / layout.world_size;
  return layout;
}

std::vector<int64_t> AnswerPacking::places_of(const Parts& parts, int first, int ranks) const {
  BatchLayout layout = layout_of(parts);
  std::vector<int64_t> places;
  for (layout.rank = first; layout.rank < first + ranks; ++layout.rank)
    for (int64_t micro = 0; micro < layout.accumulation; ++micro) {
      const std::vector<int64_t>& part = parts[static_cast<size_t>(layout.part(micro))];
      places.insert(places.end(), part.begin(), part.end());
    }
  return places;
}

}  // namespace nought
