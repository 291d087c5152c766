#include "nought/zero/tree_sums.h"

#include <bit>

namespace nought {

int TreeSums::levels_of(int64_t micro_batches) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(micro_batches)) - 1);
}

Tensor TreeSums::place_of(int64_t micro_batch) const {
  if (store_ != nullptr || micro_batch != added_ || micro_batch % 2 != 0) return {};
  return sums_.at(static_cast<size_t>(std::popcount(static_cast<uint64_t>(micro_batch))));
}

Event TreeSums::put(const Context& context, size_t level, const Tensor& values, bool add, bool last) {
  if (store_ != nullptr) return store_->take(slots_.at(level), values, add, last && level == 0);
  const Tensor& sum = sums_.at(level);
  if (add) {
    context.run(AddTo{.x = values, .into = sum});
  } else if (sum.raw() != values.raw()) {
    context.copy(values, sum);
  }
  return {};
}

Event TreeSums::add_next(const Context& context, const Tensor& values, bool last) {
  const auto number = static_cast<uint64_t>(added_++);
  auto sums = static_cast<size_t>(std::popcount(number));  // that wait for others
  size_t pairs = last ? sums : static_cast<size_t>(std::countr_one(number));
  if (pairs == 0) return put(context, sums, values, /*add=*/false, last);
  // The values of an even micro-batch that comes last may lie at the level above.
  Event done = put(context, --sums, values, /*add=*/true, last && pairs == 1);
  for (; --pairs > 0; --sums) {
    const Tensor right = store_ != nullptr ? store_->await(store_->bring(slots_.at(sums))) : sums_.at(sums);
    done = put(context, sums - 1, right, /*add=*/true, last && pairs == 1);
  }
  return done;
}

Event TreeSums::add(const Context& context, int64_t micro_batch, const Tensor& values, bool last) {
  require(micro_batch >= added_ && micro_batch < int64_t{1} << levels(),
          "micro-batch {} is added to a tree of {} behind {}", micro_batch, int64_t{1} << levels(), added_);
  if (added_ < micro_batch) {
    const Tensor zeros = context.zeros(values.shape(), values.dtype(), Category::gradients);
    while (added_ < micro_batch) add_next(context, zeros, /*last=*/false);
  }
  return add_next(context, values, last);
}

void TreeSums::finish(const Context& context, int64_t count, int64_t numel, DType dtype) {
  if (added_ >= count) return;
  const Tensor zeros = context.zeros({numel}, dtype, Category::gradients);
  while (added_ < count) add_next(context, zeros, /*last=*/added_ + 1 == count);
}

}  // namespace nought
