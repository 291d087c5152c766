#include "nought/parallel/vocabulary.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nought/comm/flight_recorder.h"
#include "nought/parallel/conjugate.h"

namespace nought {

namespace {

constexpr int32_t kIgnored = -100;  // see CrossEntropy
/// Rows whose logits are widened together have about so many: they stay in the caches.
constexpr int64_t kWidened = int64_t{1} << 20;

/// f(place, value) of each value, where kernels read it.
template <class F>
Tensor mapped(const Context& context, std::span<const int32_t> values, F&& f) {
  Tensor result = context.empty({static_cast<int64_t>(values.size())}, DType::i32);
  if (context.memory->is_virtual()) return result;
  std::vector<int32_t> mapped;
  for (const int32_t value : values) mapped.push_back(f(static_cast<int32_t>(mapped.size()), value));
  context.upload<int32_t>(mapped, result);
  return result;
}

bool holds(Interval held, int32_t id) { return held.begin <= id && id < held.end; }

}  // namespace

HeldIds held_ids(const Context& context, std::span<const int32_t> ids, Interval held) {
  const auto row = [&](int32_t, int32_t id) { return holds(held, id) ? id - static_cast<int32_t>(held.begin) : 0; };
  const auto token = [&](int32_t at, int32_t id) { return holds(held, id) ? at : -1; };
  return {mapped(context, ids, row), mapped(context, ids, token)};
}

Var vocabulary_embedding(Tape& tape, const HeldIds& ids, const WeightView& table, const TensorRanks& ranks,
                         const TokenSlices& slices) {
  const Context& context = tape.context();
  const Shape shape{ids.rows.numel(), table.shape()[1]};
  Tensor y = context.empty(shape, table.dtype());
  {
    const Tensor found = context.empty(shape, table.dtype(), Category::workspace);
    context.run(Embedding{.table = table.value(), .ids = ids.rows, .out = found});
    context.run(GatherRows{.x = found, .index = ids.tokens, .out = y});  // zeros for what others hold
  }
  const Var part = tape.record(y, {table}, [ids, table](Gradients& gradients, const Tensor& dy) {
    const Context& context = gradients.context();
    Tensor own = context.empty(dy.shape(), dy.dtype());
    context.run(GatherRows{.x = dy, .index = ids.tokens, .out = own});
    gradients.later(table, [own, rows = ids.rows](const Context& context, const GradSink& d) {
      context.run(EmbeddingBackward{own, rows, d.into, d.accumulate});
    });
  });
  return leave_ranks(tape, part, ranks, slices);
}

namespace {

/// What a rank knows of the targets of a batch, and of the ranks that know the rest.
///
/// The softmax over all columns is that over this rank's columns and one more for each other rank: the logarithm of
/// the sum of its exponentials. So the cross-entropy of whole rows serves, in f32 whatever the logits' dtype: a
/// logarithm that is rounded to 16 bits would be wrong by more than a target's logit.
class VocabularyLoss {
 public:
  VocabularyLoss(const Context& context, std::span<const int32_t> targets, Tensor weights, Interval held,
                 const TensorRanks& ranks)
      : weights_(std::move(weights)), held_(held), ranks_(ranks) {
    const auto elsewhere = static_cast<int32_t>(held.size());  // the first column of another rank
    targets_ = mapped(context, targets, [&](int32_t, int32_t target) {
      if (target == kIgnored) return kIgnored;
      return holds(held, target) ? target - static_cast<int32_t>(held.begin) : elsewhere;
    });
    own_ = context.empty({static_cast<int64_t>(targets.size())}, DType::f32);
    if (context.memory->is_virtual()) return;
    std::vector<float> own;
    for (const int32_t target : targets) own.push_back(holds(held, target) ? 1.0F : 0.0F);
    context.upload<float>(own, own_);
  }

  void operator()(const Context& context, const LogitRows& rows) const {
    require<ShapeError>(rows.logits.dim(-1) == held_.size(), "logits {} of a part of {} columns", rows.logits,
                        held_.size());
    const Tensor sums = log_sums_of_ranks(context, rows);
    const int64_t count = rows.logits.rows(), stride = std::max<int64_t>(kWidened / held_.size(), 64);
    for (int64_t begin = 0; begin < count; begin += stride)
      on_widened(context, rows, sums, {begin, std::min(begin + stride, count)});
  }

 private:
  int64_t width() const { return held_.size() + ranks_.size() - 1; }

  /// [ranks, rows]: of each row, the logarithm of the sum of each rank's exponentials.
  Tensor log_sums_of_ranks(const Context& context, const LogitRows& rows) const {
    const int64_t count = rows.logits.rows();
    const DType dtype = rows.losses.dtype();
    const Tensor first = context.empty({count, 1}, rows.logits.dtype(), Category::workspace);
    context.run(CopyHeads{
        .from = {rows.logits, 0, held_.size()}, .to = {first, 0, 1}, .tokens = count, .num_heads = 1, .head_dim = 1});
    const Tensor sum = context.empty({count}, dtype, Category::workspace);
    const Tensor zeros = context.zeros({count}, DType::i32, Category::workspace);
    context.run(CrossEntropy{.logits = rows.logits, .targets = zeros, .loss = sum});  // sum - the first logit
    Tensor wide = first;
    if (first.dtype() != dtype) {
      wide = context.empty({count, 1}, dtype, Category::workspace);
      context.run(Cast{.x = first, .y = wide});
    }
    context.run(AddTo{.x = wide.reshape({count}), .into = sum});
    Tensor all = context.empty({ranks_.size() * count}, dtype, Category::workspace);
    const FlightSubject subject(ranks_.group(), "loss");
    ranks_.group().wait(ranks_.group().all_gather(sum, all), *context.stream);
    return all;
  }

  /// Losses and gradients of rows `which`, on a copy with the columns of other ranks.
  void on_widened(const Context& context, const LogitRows& rows, const Tensor& sums, Interval which) const {
    const int64_t count = which.size(), held = held_.size();
    const DType dtype = rows.losses.dtype();
    const Tensor part = rows.logits.slice(which.begin, which.end);
    const bool casts = part.dtype() != dtype;
    const Tensor cast = casts ? context.empty(part.shape(), dtype, Category::workspace) : part;
    if (casts) context.run(Cast{.x = part, .y = cast});
    const Tensor wide = context.empty({count, width()}, dtype, Category::workspace);
    const Heads narrow{cast, 0, held}, widened{wide, 0, width()};
    context.run(CopyHeads{.from = narrow, .to = widened, .tokens = count, .num_heads = 1, .head_dim = held});
    int64_t column = held;
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (rank != ranks_.rank())
        context.run(CopyHeads{.from = {sums, rank * rows.logits.rows() + which.begin, 1},
                              .to = {wide, column++, width()},
                              .tokens = count,
                              .num_heads = 1,
                              .head_dim = 1});
    const int64_t begin = rows.tokens.begin + which.begin, end = rows.tokens.begin + which.end;
    const Tensor losses = context.empty({count, 1}, dtype, Category::workspace);
    context.run(CrossEntropy{.logits = wide,
                             .targets = targets_.flat(begin, end),
                             .loss = losses.reshape({count}),
                             .weights = weights_.defined() ? weights_.flat(begin, end) : Tensor{},
                             .gradient = rows.gradient,
                             .gradient_scale = rows.gradient_scale});
    Tensor own = own_.flat(begin, end);
    if (own.dtype() != dtype) {
      own = context.empty({count}, dtype, Category::workspace);
      context.run(Cast{.x = own_.flat(begin, end), .y = own});
    }
    const Tensor kept = rows.losses.flat(which.begin, which.end).reshape({count, 1});
    context.run(ScaleRows{.x = losses, .factors = own, .y = kept});
    if (!rows.gradient) return;
    context.run(CopyHeads{.from = widened, .to = narrow, .tokens = count, .num_heads = 1, .head_dim = held});
    if (casts) context.run(Cast{.x = cast, .y = part});
  }

  Tensor targets_;  // [tokens] i32, of the widened columns
  Tensor own_;      // [tokens] f32: 1 where this rank holds the target, else 0
  Tensor weights_;
  Interval held_;
  TensorRanks ranks_;
};

}  // namespace

RowLoss vocabulary_cross_entropy_rows(const Context& context, std::span<const int32_t> targets, const Tensor& weights,
                                      Interval held, const TensorRanks& ranks) {
  require<ShapeError>(!weights.defined() || weights.numel() == static_cast<int64_t>(targets.size()),
                      "{} targets but {} weights", targets.size(), weights.numel());
  return VocabularyLoss(context, targets, weights, held, ranks);
}

}  // namespace nought
