#include "nought/parallel/split_softmax.h"

#include <algorithm>
#include <vector>

namespace nought {

namespace {

/// Rows whose logits are widened together have about so many: they stay in the caches.
constexpr int64_t kWidened = int64_t{1} << 20;

/// Computes on a copy of a few rows that has the columns of other parts too.
void on_widened(const Context& context, const Tensor& logits, const PartSums& sums, const PartTargets& of,
                Interval which) {
  const int64_t count = which.size(), held = logits.dim(-1), width = held + sums.parts - 1;
  const DType dtype = of.losses.dtype();
  const Tensor part = logits.slice(which.begin, which.end);
  const bool casts = part.dtype() != dtype;
  const Tensor cast = casts ? context.empty(part.shape(), dtype, Category::workspace) : part;
  if (casts) context.run(Cast{.x = part, .y = cast});
  const Tensor wide = context.empty({count, width}, dtype, Category::workspace);
  const Heads narrow{cast, 0, held}, widened{wide, 0, width};
  context.run(CopyHeads{.from = narrow, .to = widened, .tokens = count, .num_heads = 1, .head_dim = held});
  const int64_t stride = sums.log_sums.numel() / sums.parts;
  int64_t column = held;
  for (int other = 0; other < sums.parts; ++other)
    if (other != sums.part)
      context.run(CopyHeads{.from = {sums.log_sums, other * stride + sums.rows.begin + which.begin, 1},
                            .to = {wide, column++, width},
                            .tokens = count,
                            .num_heads = 1,
                            .head_dim = 1});
  context.run(CrossEntropy{.logits = wide,
                           .targets = of.targets.flat(which.begin, which.end),
                           .loss = of.losses.flat(which.begin, which.end),
                           .weights = of.weights.defined() ? of.weights.flat(which.begin, which.end) : Tensor{},
                           .gradient = of.gradient,
                           .gradient_scale = of.gradient_scale});
  if (!of.gradient) return;
  context.run(CopyHeads{.from = widened, .to = narrow, .tokens = count, .num_heads = 1, .head_dim = held});
  if (casts) context.run(Cast{.x = cast, .y = part});
}

}  // namespace

Tensor mapped_ids(const Context& context, std::span<const int32_t> values,
                  const std::function<int32_t(int32_t place, int32_t value)>& f) {
  Tensor result = context.empty({static_cast<int64_t>(values.size())}, DType::i32);
  if (context.memory->is_virtual()) return result;
  std::vector<int32_t> mapped;
  for (const int32_t value : values) mapped.push_back(f(static_cast<int32_t>(mapped.size()), value));
  context.upload<int32_t>(mapped, result);
  return result;
}

Tensor log_sums(const Context& context, const Tensor& logits, DType dtype) {
  const int64_t count = logits.rows();
  const Tensor first = context.empty({count, 1}, logits.dtype(), Category::workspace);
  context.run(CopyHeads{
      .from = {logits, 0, logits.dim(-1)}, .to = {first, 0, 1}, .tokens = count, .num_heads = 1, .head_dim = 1});
  const Tensor sum = context.empty({count}, dtype, Category::workspace);
  const Tensor zeros = context.zeros({count}, DType::i32, Category::workspace);
  context.run(CrossEntropy{.logits = logits, .targets = zeros, .loss = sum});  // sum - the first logit
  Tensor wide = first;
  if (first.dtype() != dtype) {
    wide = context.empty({count, 1}, dtype, Category::workspace);
    context.run(Cast{.x = first, .y = wide});
  }
  context.run(AddTo{.x = wide.reshape({count}), .into = sum});
  return sum;
}

void cross_entropy_of_part(const Context& context, const Tensor& logits, const PartSums& sums,
                           const PartTargets& targets) {
  const int64_t count = logits.rows(), stride = std::max<int64_t>(kWidened / logits.dim(-1), 64);
  for (int64_t begin = 0; begin < count; begin += stride)
    on_widened(context, logits, sums, targets, {begin, std::min(begin + stride, count)});
}

}  // namespace nought
