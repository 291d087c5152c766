#include "nought/nn/distil_objective.h"

#include <algorithm>

namespace nought {

RowLoss DistilObjective::rows(const Batch& batch) const {
  require<ShapeError>(batch.teacher.defined() && batch.teacher.rows() == batch.input_ids.numel(),
                      "{} tokens, and the teacher's states are {}", batch.input_ids.numel(), batch.teacher);
  return [this, targets = batch.targets, states = batch.teacher](const Context& context, const LogitRows& rows) {
    require(logits_ != nullptr, "the teacher's head is not held");
    const auto [begin, end] = rows.tokens;
    context.run(JensenShannon{.logits = rows.logits,
                              .teacher = (*logits_)(states.slice(begin, end)),
                              .targets = targets.flat(begin, end),
                              .loss = rows.losses,
                              .beta = beta_,
                              .gradient = rows.gradient,
                              .gradient_scale = rows.gradient_scale});
  };
}

void DistilObjective::around(const Context& context, const std::function<void()>& pass) const {
  hold_(context, [&](const LogitsOfRows& logits) {
    logits_ = &logits;
    pass();
    logits_ = nullptr;
  });
}

double DistilObjective::weight(const Batch& batch) const {
  const auto targets = batch.targets.span<int32_t>();
  return static_cast<double>(std::ssize(targets) - std::count(targets.begin(), targets.end(), kIgnoredTarget));
}

}  // namespace nought
