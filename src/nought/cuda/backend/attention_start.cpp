// Attention on the device: where sequences lie, which kernels run, and what they need beside their operands.
#include "nought/cuda/backend/attention_start.h"

#include <algorithm>
#include <vector>

#include "nought/cuda/backend/attention.h"
#include "nought/cuda/backend/runtime.h"

namespace nought::cuda {

namespace {

/// A copy on the device. The values are read in the call, so that they may go.
template <class T>
const T* on_device(const std::vector<T>& values, Place& at) {
  const size_t bytes = values.size() * sizeof(T);
  void* const there = at.room();
  check(cudaMemcpyAsync(there, values.data(), bytes, cudaMemcpyDefault, at.launch.stream), "where sequences lie");
  return static_cast<const T*>(there);
}

/// Sizes for tiles of so many queries and keys.
AttentionSizes sizes_of(const AttentionShape& shape, int64_t query_rows, int64_t key_rows, Place& at) {
  AttentionSizes sizes{.sequences = shape.num_sequences(),
                       .q_tokens = shape.q_tokens(),
                       .k_tokens = shape.k_tokens(),
                       .q_length = shape.q_length,
                       .k_length = shape.k_length,
                       .query_rows = query_rows,
                       .key_rows = key_rows,
                       .num_heads = shape.num_heads,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim,
                       .value_dim = shape.value_dim(),
                       .window = shape.window,
                       .causal = shape.causal,
                       .scale = shape.scale,
                       .softcap = shape.softcap};
  sizes.key_tiles = sizes.sequences * ceil_div(shape.k_length, key_rows);
  std::vector<SpanOnDevice> spans;
  for (int64_t i = 0; i < sizes.sequences; ++i) {
    const AttentionSpan span = shape.span(i);
    if (!shape.spans.empty())
      spans.push_back(
          {span.q_begin, span.q_length, span.k_begin, span.k_length, span.first_position(), sizes.query_tiles});
    sizes.query_tiles += ceil_div(span.q_length, query_rows);
  }
  if (!spans.empty()) sizes.spans = on_device<SpanOnDevice>(spans, at);
  return sizes;
}

void add_segments(const AttentionShape& shape, AttentionSizes& sizes, Place& at) {
  if (shape.spans.empty()) return;
  std::vector<KeySegment> segments;
  sizes.key_tiles = 0;
  for (const Interval& keys : key_segments(shape)) {
    segments.push_back({keys.begin, keys.end, sizes.key_tiles});
    sizes.key_tiles += ceil_div(keys.size(), sizes.key_rows);
  }
  sizes.num_segments = std::ssize(segments);
  if (!segments.empty()) sizes.segments = on_device<KeySegment>(segments, at);
}

/// f32 stays f32: tensor cores have bf16 and f16.
bool by_tensor_cores(const Heads& q) { return q.base.dtype() == DType::bf16 || q.base.dtype() == DType::f16; }

int64_t key_rows_of(const AttentionShape& shape) { return mma_key_rows(std::max(shape.head_dim, shape.value_dim())); }

bool are_taken(const AttentionShape& shape) {
  return shape.head_dim <= kMostHeadDim && shape.value_dim() <= kMostHeadDim;
}

}  // namespace

bool fits(const Attention& op) {
  return are_taken(op.shape) && op.k.base.dtype() == op.q.base.dtype();  // caches of another dtype run on the host
}
bool fits(const AttentionBackward& op) { return are_taken(op.shape); }

void start(const Attention& op, Place& at) {
  const AttentionShape& shape = op.shape;
  const AttentionArrays arrays{.q = heads_of(op.q, shape.head_dim),
                               .k = heads_of(op.k, shape.head_dim),
                               .v = heads_of(op.v, shape.value_dim()),
                               .out = array_of(op.out),
                               .lse = array_of(op.lse),
                               .sinks = array_of(op.sinks)};
  if (by_tensor_cores(op.q)) return attention_mma(at.launch, arrays, sizes_of(shape, kMmaRows, key_rows_of(shape), at));
  attention_plain(at.launch, arrays, sizes_of(shape, kPlainRows, kPlainRows, at));
}

void start(const AttentionBackward& op, Place& at) {
  const AttentionShape& shape = op.shape;
  const AttentionBackwardArrays arrays{.q = heads_of(op.q, shape.head_dim),
                                       .k = heads_of(op.k, shape.head_dim),
                                       .v = heads_of(op.v, shape.value_dim()),
                                       .out = array_of(op.out),
                                       .lse = array_of(op.lse),
                                       .d_out = array_of(op.d_out),
                                       .sinks = array_of(op.sinks),
                                       .delta = {at.room(), op.lse.dtype()},
                                       .dq = heads_of(op.dq, shape.head_dim),
                                       .dk = heads_of(op.dk, shape.head_dim),
                                       .dv = heads_of(op.dv, shape.value_dim()),
                                       .d_sinks = array_of(op.d_sinks),
                                       .accumulate_sinks = op.accumulate_sinks,
                                       .accumulate_q = op.accumulate_q,
                                       .accumulate_kv = op.accumulate_kv};
  const bool mma = by_tensor_cores(op.q);
  AttentionSizes sizes =
      mma ? sizes_of(shape, kMmaRows, key_rows_of(shape), at) : sizes_of(shape, kPlainRows, kPlainRows, at);
  add_segments(shape, sizes, at);
  attention_deltas(at.launch, arrays, sizes);
  if (!mma) return attention_backward_plain(at.launch, arrays, sizes);
  attention_queries_mma(at.launch, arrays, sizes);
  attention_keys_mma(at.launch, arrays, sizes);
}

void start(const MergeAttention& op, Place& at) {
  merge_attention(at.launch,
                  {.piece_out = array_of(op.piece_out),
                   .piece_lse = array_of(op.piece_lse),
                   .out = array_of(op.out),
                   .lse = array_of(op.lse)},
                  sizes_of(op.shape, kPlainRows, kPlainRows, at));
}

}  // namespace nought::cuda
