#include "nought/cuda/workspace.h"

#include <algorithm>
#include <iterator>

#include "nought/cuda/limits.h"

namespace nought::cuda {

namespace {

constexpr int64_t kWide = 8;  // bytes of f64, i64 and u64

using Rooms = std::vector<int64_t>;

/// The room of so many sums over the rows of x.
Rooms column_rooms(const Tensor& x, int64_t sums) {
  return {sums * room_of_columns(x.rows(), x.dim(-1)) * size_of(statistics_dtype(x.dtype()))};
}

bool lies_well(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.raw()) % kAlignmentOfProducts == 0; }

void add_if_moved(const Tensor& x, Rooms& rooms) {
  if (x && !lies_well(x)) rooms.push_back(x.bytes());
}

bool is_taken(const AttentionShape& shape) {
  return shape.head_dim <= kMostHeadDim && shape.value_dim() <= kMostHeadDim;
}

void add_spans(const AttentionShape& shape, Rooms& rooms) {
  if (!shape.spans.empty()) rooms.push_back(std::ssize(shape.spans) * static_cast<int64_t>(sizeof(SpanOnDevice)));
}

}  // namespace

std::vector<Interval> key_segments(const AttentionShape& shape) {
  std::vector<int64_t> cuts;
  for (const AttentionSpan& span : shape.spans)
    if (span.k_length > 0) cuts.push_back(span.k_begin), cuts.push_back(span.k_begin + span.k_length);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Interval> segments;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Interval keys{cuts[i], cuts[i + 1]};
    const bool named = std::any_of(shape.spans.begin(), shape.spans.end(), [&](const AttentionSpan& span) {
      return span.k_begin <= keys.begin && keys.end <= span.k_begin + span.k_length;
    });
    if (named) segments.push_back(keys);
  }
  return segments;
}

template <>
Rooms workspace_of(const MatMul& op, const ProductWorkspace& products) {
  if (op.a.dtype() == DType::f64 && op.c.dtype() != DType::f64) return {};  // on the host
  const auto [m, n, k] = op.sizes();
  Rooms rooms;
  if (m == 0 || n == 0) return rooms;
  add_if_moved(op.c, rooms);
  if (k == 0) return rooms;
  if (const int64_t asked = products(op); asked > 0) rooms.push_back(asked);
  add_if_moved(op.a, rooms);
  if (op.b.is_quantized()) {
    rooms.push_back(op.b.numel() * size_of(op.a.dtype()));
  } else {
    add_if_moved(op.b.values, rooms);
  }
  const bool adds_bias = op.bias && op.bias.dtype() == op.c.dtype() && op.c.dtype() != DType::f64;
  if (adds_bias) add_if_moved(op.bias, rooms);
  return rooms;
}

template <>
Rooms workspace_of(const SumSquares& op, const ProductWorkspace& /*products*/) {
  return {ceil_div(op.x.numel(), kSquaresBlock) * kWide};
}

template <>
Rooms workspace_of(const SumRows& op, const ProductWorkspace& /*products*/) {
  return column_rooms(op.x, 1);
}

template <>
Rooms workspace_of(const RmsNormBackward& op, const ProductWorkspace& /*products*/) {
  return column_rooms(op.x, 1);
}

template <>
Rooms workspace_of(const LayerNormBackward& op, const ProductWorkspace& /*products*/) {
  return column_rooms(op.x, 2);
}

template <>
Rooms workspace_of(const EmbeddingBackward& op, const ProductWorkspace& /*products*/) {
  if (op.ids.numel() == 0) return {};
  return {room_of_keys(op.ids.numel()) * kWide};
}

template <>
Rooms workspace_of(const Route& op, const ProductWorkspace& /*products*/) {
  const int64_t tokens = op.logits.dim(0), count = op.logits.dim(1), each = size_of(op.logits.dtype());
  if (count > kMostExperts) return {};
  Rooms rooms{tokens * count * each};
  if (op.choice_bias) rooms.push_back(count * each);
  rooms.push_back(room_of_columns(tokens, count) * kWide);
  return rooms;
}

template <>
Rooms workspace_of(const RouteBackward& op, const ProductWorkspace& /*products*/) {
  if (op.logits.dim(1) > kMostExperts) return {};
  return {op.logits.dim(0) * op.rule.top_k * size_of(op.logits.dtype())};
}

template <>
Rooms workspace_of(const GroupByExpert& op, const ProductWorkspace& /*products*/) {
  return {room_of_keys(op.experts.numel()) * kWide, 2 * op.counts.numel() * kWide};
}

template <>
Rooms workspace_of(const Attention& op, const ProductWorkspace& /*products*/) {
  Rooms rooms;
  if (is_taken(op.shape)) add_spans(op.shape, rooms);
  return rooms;
}

template <>
Rooms workspace_of(const AttentionBackward& op, const ProductWorkspace& /*products*/) {
  if (!is_taken(op.shape)) return {};
  Rooms rooms{op.shape.q_tokens() * op.shape.num_heads * size_of(op.lse.dtype())};
  add_spans(op.shape, rooms);
  if (const int64_t segments = std::ssize(key_segments(op.shape)); segments > 0)
    rooms.push_back(segments * static_cast<int64_t>(sizeof(KeySegment)));
  return rooms;
}

template <>
Rooms workspace_of(const MergeAttention& op, const ProductWorkspace& /*products*/) {
  Rooms rooms;
  add_spans(op.shape, rooms);
  return rooms;
}

template <>
Rooms workspace_of(const OneBitEncode& op, const ProductWorkspace& /*products*/) {
  return {(ceil_div(op.x.numel(), kSquaresBlock) + 1) * kWide};
}

template <>
Rooms workspace_of(const Orthonormalize& op, const ProductWorkspace& /*products*/) {
  return {op.x.dim(1) * kWide};
}

}  // namespace nought::cuda
