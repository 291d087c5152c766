#include "nought/zero/power_sgd.h"

#include <algorithm>

#include "nought/comm/flight_recorder.h"
#include "nought/tensor/random.h"

namespace nought {

PowerSgd::PowerSgd(const Context& context, Communicator& ranks, const PowerSgdOptions& options, DType gradient_dtype,
                   const std::vector<std::unique_ptr<Unit>>& units, Reducer& reducer)
    : context_(context), ranks_(ranks), options_(options), dtype_(gradient_dtype), reducer_(reducer) {
  for (const SegmentIndex at : segments_of(units, /*trainable=*/true))
    for (const size_t i : units[at.unit]->segments()[at.segment].parameters)
      add(*units[at.unit], at, units[at.unit]->parameters()[i]);
  q_ = context_.zeros({q_elements_}, DType::f32, Category::optimizer);
  if (options_.use_error_feedback) error_ = context_.zeros({errors_}, DType::f32, Category::optimizer);
}

void PowerSgd::add(const Unit& unit, SegmentIndex at, const Parameter& parameter) {
  const int64_t numel = parameter.range.size(), rows = parameter.shape.rank() > 1 ? parameter.shape[0] : 1;
  const int64_t columns = rows == 0 ? 0 : numel / rows, rank = std::min({options_.rank, rows, columns});
  const double factors = static_cast<double>((rows + columns) * rank) * options_.min_compression_rate;
  if (rows <= 1 || factors >= static_cast<double>(numel)) {
    rests_.push_back({at, parameter.range, {rest_, rest_ + numel}});
    rest_ += numel;
    return;
  }
  matrices_.push_back({.name = fmt::format("{}.{}", unit.name(), parameter.name),
                       .at = at,
                       .range = parameter.range,
                       .rows = rows,
                       .columns = columns,
                       .rank = rank,
                       .in_p = {p_, p_ + rank * rows},
                       .in_q = {q_elements_, q_elements_ + rank * columns},
                       .in_error = {errors_, errors_ + numel}});
  p_ += rank * rows, q_elements_ += rank * columns, errors_ += numel;
}

Tensor PowerSgd::gradient(const Matrix& matrix) const {
  return reducer_.reduced(matrix.at).flat(matrix.range.begin, matrix.range.end).reshape({matrix.rows, matrix.columns});
}

Tensor PowerSgd::sent(const Matrix& matrix) const {
  if (error_) return error_.flat(matrix.in_error.begin, matrix.in_error.end).reshape({matrix.rows, matrix.columns});
  const Tensor own = gradient(matrix);
  if (dtype_ == DType::f32) return own;
  const Tensor wide = context_.empty(own.shape(), DType::f32, Category::workspace);
  context_.run(Cast{.x = own, .y = wide});
  return wide;
}

void PowerSgd::reduce(int64_t updates) {
  const FlightSubject subject(ranks_, "PowerSGD");
  const Tensor p = context_.empty({p_}, DType::f32, Category::communication);
  for (const Matrix& matrix : matrices_) {
    if (error_) context_.run(AddTo{.x = gradient(matrix), .into = sent(matrix)});
    const Tensor q = q_of(matrix);
    if (!options_.warm_start) context_.zero(q);
    const uint64_t key = stable_hash(matrix.name, options_.seed + static_cast<uint64_t>(updates));
    context_.run(Orthonormalize{.x = q, .key = key, .draws = true});
    context_.run(MatMul{.a = q, .b = sent(matrix), .c = p_of(matrix, p), .transpose_b = true});
  }
  reduce_rest();
  if (matrices_.empty()) return;
  sum(p);
  for (const Matrix& matrix : matrices_) {
    context_.run(Orthonormalize{.x = p_of(matrix, p)});
    context_.run(MatMul{.a = p_of(matrix, p), .b = sent(matrix), .c = q_of(matrix)});
  }
  sum(q_);
  for (const Matrix& matrix : matrices_) write_back(matrix, p);
}

/// The gradient becomes P Q', and the error loses this rank's share of it.
void PowerSgd::write_back(const Matrix& matrix, const Tensor& p) const {
  const Tensor left = p_of(matrix, p), right = q_of(matrix), into = gradient(matrix);
  const bool direct = dtype_ == DType::f32;
  const Tensor product = direct ? into : context_.empty(into.shape(), DType::f32, Category::workspace);
  context_.run(MatMul{.a = left, .b = right, .c = product, .transpose_a = true});
  if (!direct) context_.run(Cast{.x = product, .y = into});
  if (!error_) return;
  context_.run(Scale{.x = left, .factor = -1.0 / ranks_.size()});
  context_.run(MatMul{.a = left, .b = right, .c = sent(matrix), .transpose_a = true, .accumulate = true});
}

void PowerSgd::reduce_rest() const {
  if (rest_ == 0) return;
  const Tensor packed = context_.empty({rest_}, dtype_, Category::communication);
  const auto each = [&](const auto& copy) {
    for (const Rest& rest : rests_)
      copy(reducer_.reduced(rest.at).flat(rest.range.begin, rest.range.end),
           packed.flat(rest.in_rest.begin, rest.in_rest.end));
  };
  each([&](const Tensor& own, const Tensor& part) { context_.copy(own, part); });
  sum(packed);
  each([&](const Tensor& own, const Tensor& part) { context_.copy(part, own); });
}

void PowerSgd::forget_errors() {
  if (error_) context_.zero(error_);
  context_.zero(q_);
}

std::vector<RankLocalTensor> PowerSgd::rank_local_tensors() const {
  std::vector<RankLocalTensor> own;
  if (matrices_.empty()) return own;
  own.push_back({"power_sgd_q", q_});
  if (error_) own.push_back({"power_sgd_error", error_});
  return own;
}

}  // namespace nought
