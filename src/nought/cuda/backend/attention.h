// The kernels of attention as host code calls them. Shapes and meanings are those of kernels/ops/attention.h.
//
// A block has a tile of queries or of keys, and goes over what they meet in tiles, in the order of tokens: no sum
// depends on the grid, and none is added by two blocks. So the backward pass is two kernels that form the scores each
// for themselves: one gives dq, the other dk and dv.
#pragma once

#include "nought/cuda/backend/launch.h"
#include "nought/cuda/limits.h"

namespace nought::cuda {

/// Heads of tokens: element (token, head, i) is at[token * token_stride + head * head_stride + i].
struct HeadArray {
  Array array = {};
  int64_t token_stride = 0, head_stride = 0;
};

struct AttentionSizes {
  int64_t sequences = 0, q_tokens = 0, k_tokens = 0;
  int64_t q_length = 0, k_length = 0;    // of each sequence, if there are no spans
  const SpanOnDevice* spans = nullptr;   // on the device, as what follows
  const KeySegment* segments = nullptr;  // the keys that any sequence has; of the backward pass
  int64_t num_segments = 0;
  int64_t query_rows = 0, key_rows = 0;    // queries and keys of a tile
  int64_t query_tiles = 0, key_tiles = 0;  // tiles of all
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, value_dim = 0, window = 0;
  bool causal = false;
  double scale = 1, softcap = 0;
};

/// `out` may be f32, whatever q, k and v are. No sinks: null.
struct AttentionArrays {
  HeadArray q, k, v;
  Array out, lse, sinks;
};
struct AttentionBackwardArrays {
  HeadArray q, k, v;
  Array out, lse, d_out, sinks, delta;  // delta: [q_tokens, num_heads], room for the sums of out * d_out
  HeadArray dq, dk, dv;                 // each f32 or as q
  Array d_sinks;
  bool accumulate_sinks = false, accumulate_q = false, accumulate_kv = false;
};

// attention_plain.cu: multiplications and additions, for f32 and f64. Tiles have kPlainRows queries and keys.
inline constexpr int64_t kPlainRows = 16;
void attention_plain(const Launch& where, const AttentionArrays& a, const AttentionSizes& s);
void attention_backward_plain(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s);

// attention_mma.cu, attention_mma_queries.cu, attention_mma_keys.cu: tensor cores, for bf16 and f16. Probabilities and
// gradients of scores are rounded to that dtype before they are multiplied.

inline constexpr int kMmaRows = 64;  // queries of a tile
/// Keys of a tile of the backward pass, by the larger one of the sizes of a head of keys and of one of values.
constexpr int mma_key_rows(int64_t columns) { return columns <= 128 ? 64 : 32; }
void attention_mma(const Launch& where, const AttentionArrays& a, const AttentionSizes& s);
/// dq; and dk and dv.
void attention_queries_mma(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s);
void attention_keys_mma(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s);

// attention_sums.cu
/// delta = the sums of out * d_out over each head of a query; d_sinks [+=] if there are any. First of a backward pass.
void attention_deltas(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s);
struct MergeArrays {
  Array piece_out, piece_lse, out, lse;
};
void merge_attention(const Launch& where, const MergeArrays& a, const AttentionSizes& s);

}  // namespace nought::cuda
