#include "nought/kernels/ops.h"

#include <algorithm>
#include <type_traits>

namespace nought {

// --- products ---

MatMulSizes MatMul::sizes() const {
  const auto rows = [](const Shape& x) {  // not Tensor::rows(): columns may be 0 here
    int64_t count = 1;
    for (int axis = 0; axis + 1 < x.rank(); ++axis) count *= x[axis];
    return count;
  };
  return {.m = transpose_a ? a.dim(-1) : rows(a.shape()),
          .n = transpose_b ? rows(b.shape()) : b.dim(-1),
          .k = transpose_a ? rows(a.shape()) : a.dim(-1)};
}

double MatMul::flops() const {
  const MatMulSizes s = sizes();
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::string MatMul::label() const {
  const MatMulSizes s = sizes();
  return fmt::format("{} x {} x {}{}{}", s.m, s.n, s.k, transpose_a ? ", a'" : "", transpose_b ? ", b'" : "");
}

// --- attention ---

int64_t AttentionShape::k_tokens() const {
  int64_t end = spans.empty() ? batch * k_length : 0;
  for (const AttentionSpan& span : spans)
    if (span.k_length > 0) end = std::max(end, span.k_begin + span.k_length);
  return end;
}

namespace {

/// The pairs of queries and keys that a causal mask leaves; on the diagonal a half, so that a whole sequence has half
/// of its pairs.
double causal_pairs(const AttentionSpan& span) {
  const auto keys = static_cast<double>(span.k_length);
  const auto before = [keys](int64_t position) {  // those of all queries from 0 to the position
    const double seen = std::clamp(static_cast<double>(position), 0.0, keys);
    return seen * seen / 2 + keys * (std::max(static_cast<double>(position), keys) - keys);
  };
  return before(span.first_position() + span.q_length) - before(span.first_position());
}

}  // namespace

double AttentionShape::product_flops() const {
  double pairs = 0;
  for (int64_t i = 0; i < num_sequences(); ++i)
    pairs +=
        causal ? causal_pairs(span(i)) : static_cast<double>(span(i).q_length) * static_cast<double>(span(i).k_length);
  return 2.0 * static_cast<double>(num_heads * head_dim) * pairs;
}

// --- what the host reads ---

void Fill::dry_run() const {
  if (x.numel() != 1) return;
  visit_float(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    *x.data<T>() = static_cast<T>(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(value));
  });
}

void GroupByExpert::dry_run() const {
  const int64_t choices = experts.numel(), num_experts = counts.numel();
  int32_t* count = counts.data<int32_t>();
  for (int64_t e = 0; e < num_experts; ++e)
    count[e] = static_cast<int32_t>(choices / num_experts + (e < choices % num_experts ? 1 : 0));
}

// --- names ---

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return "gelu_erf";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
    case Activation::relu:
      return "relu";
  }
  return "?";
}

std::string_view name_of(RouterScores scores) {
  switch (scores) {
    case RouterScores::softmax:
      return "softmax";
    case RouterScores::sigmoid:
      return "sigmoid";
    case RouterScores::chosen_softmax:
      return "chosen_softmax";
  }
  return "?";
}

std::string_view name_of(GroupScore score) {
  switch (score) {
    case GroupScore::best:
      return "best";
    case GroupScore::best_two:
      return "best_two";
  }
  return "?";
}

std::string_view name_of(Fp8 format) {
  switch (format) {
    case Fp8::e4m3:
      return "e4m3";
    case Fp8::e5m2:
      return "e5m2";
  }
  return "?";
}

}  // namespace nought
