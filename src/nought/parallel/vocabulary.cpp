#include "nought/parallel/vocabulary.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nought/comm/flight_recorder.h"
#include "nought/parallel/conjugate.h"
#include "nought/parallel/split_softmax.h"

namespace nought {

namespace {

bool holds(Interval held, int32_t id) { return held.begin <= id && id < held.end; }

}  // namespace

HeldIds held_ids(const Context& context, std::span<const int32_t> ids,
                 const std::function<int32_t(int32_t id)>& row_of) {
  const auto row = [&](int32_t, int32_t id) { return std::max(row_of(id), 0); };
  const auto token = [&](int32_t at, int32_t id) { return row_of(id) >= 0 ? at : -1; };
  return {mapped_ids(context, ids, row), mapped_ids(context, ids, token)};
}

HeldIds held_ids(const Context& context, std::span<const int32_t> ids, Interval held) {
  return held_ids(context, ids,
                  [&](int32_t id) { return holds(held, id) ? id - static_cast<int32_t>(held.begin) : -1; });
}

Var held_embedding(Tape& tape, const HeldIds& ids, const WeightView& table) {
  const Context& context = tape.context();
  const Shape shape{ids.rows.numel(), table.shape()[1]};
  Tensor y = context.empty(shape, table.dtype());
  {
    const Tensor found = context.empty(shape, table.dtype(), Category::workspace);
    context.run(Embedding{.table = table.value(), .ids = ids.rows, .out = found});
    context.run(GatherRows{.x = found, .index = ids.tokens, .out = y});  // zeros for what others hold
  }
  return tape.record(y, {table}, [ids, table](Gradients& gradients, const Tensor& dy) {
    const Context& context = gradients.context();
    Tensor own = context.empty(dy.shape(), dy.dtype());
    context.run(GatherRows{.x = dy, .index = ids.tokens, .out = own});
    gradients.later(table, [own, rows = ids.rows](const Context& context, const GradSink& d) {
      context.run(EmbeddingBackward{own, rows, d.into, d.accumulate});
    });
  });
}

Var vocabulary_embedding(Tape& tape, const HeldIds& ids, const WeightView& table, const TensorRanks& ranks,
                         const TokenSlices& slices) {
  return leave_ranks(tape, held_embedding(tape, ids, table), ranks, slices);
}

namespace {

/// What a rank knows of the targets of a batch, and of the ranks that know the rest; see parallel/split_softmax.
class VocabularyLoss {
 public:
  VocabularyLoss(const Context& context, std::span<const int32_t> targets, Tensor weights, Interval held,
                 const TensorRanks& ranks)
      : weights_(std::move(weights)), held_(held), ranks_(ranks) {
    const auto elsewhere = static_cast<int32_t>(held.size());  // the first column of another rank
    targets_ = mapped_ids(context, targets, [&](int32_t, int32_t target) {
      if (target == kIgnoredId) return kIgnoredId;
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
    const int64_t count = rows.logits.rows();
    const auto [begin, end] = rows.tokens;
    const DType dtype = rows.losses.dtype();
    const PartSums sums{log_sums_of_ranks(context, rows), ranks_.size(), ranks_.rank(), {0, count}};
    const Tensor losses = context.empty({count, 1}, dtype, Category::workspace);
    cross_entropy_of_part(context, rows.logits, sums,
                          {.targets = targets_.flat(begin, end),
                           .weights = weights_.defined() ? weights_.flat(begin, end) : Tensor{},
                           .losses = losses.reshape({count}),
                           .gradient = rows.gradient,
                           .gradient_scale = rows.gradient_scale});
    Tensor own = own_.flat(begin, end);
    if (own.dtype() != dtype) {
      own = context.empty({count}, dtype, Category::workspace);
      context.run(Cast{.x = own_.flat(begin, end), .y = own});
    }
    context.run(ScaleRows{.x = losses, .factors = own, .y = rows.losses.reshape({count, 1})});
  }

 private:
  /// [ranks, rows]
  Tensor log_sums_of_ranks(const Context& context, const LogitRows& rows) const {
    const Tensor sum = log_sums(context, rows.logits, rows.losses.dtype());
    Tensor all = context.empty({ranks_.size() * sum.numel()}, sum.dtype(), Category::workspace);
    const FlightSubject subject(ranks_.group(), "loss");
    ranks_.group().wait(ranks_.group().all_gather(sum, all), *context.stream);
    return all;
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
