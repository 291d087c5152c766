// Heads of tokens within wider rows: where they lie, copies, sums, rotary positions.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// Where the heads of each token lie in a wider row: element (token, head, i) is base[offset + token * token_stride +
/// head * head_stride + i], base seen flat. So q, k and v may be parts of one packed projection, or rows of a cache.
struct Heads {
  Tensor base;
  int64_t offset = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;  // 0: head_dim; the heads of a token lie side by side

  int64_t stride(int64_t head_dim) const { return head_stride > 0 ? head_stride : head_dim; }
  int64_t at(int64_t token, int64_t head, int64_t head_dim) const {
    return offset + token * token_stride + head * stride(head_dim);
  }
  /// From the first element of a token's heads to the end of its last head.
  int64_t width(int64_t num_heads, int64_t head_dim) const { return (num_heads - 1) * stride(head_dim) + head_dim; }
  /// The heads as visit() lists them: a row per token. `used` is how many elements of each head are read or written;
  /// 0: all.
  StridedRows rows(int64_t tokens, int64_t num_heads, int64_t head_dim, int64_t used = 0) const {
    return {base, offset, tokens, token_stride, width(num_heads, head_dim), num_heads * (used > 0 ? used : head_dim)};
  }
};

/// to[t, h] [+]= from[t, h] for num_heads heads of each token. With `broadcast`, `from` has one head: to[t, h] [+]=
/// from[t]. What is copied, and not added, may be rounded once to another float dtype of `to`.
struct CopyHeads {
  Heads from, to;
  int64_t tokens = 0, num_heads = 0, head_dim = 0;
  bool broadcast = false, accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("from", from.rows(tokens, broadcast ? 1 : num_heads, head_dim), kReads);
    v("to", to.rows(tokens, num_heads, head_dim), kWrites.adding(accumulate));
    v("tokens", tokens);
    v("num_heads", num_heads);
    v("head_dim", head_dim);
    v("broadcast", broadcast);
    v("accumulate", accumulate);
  }
};

/// Heads in codes of 8 bits with a scale for each head of each token, as a cache of keys and values may hold them: head
/// h of token t becomes head h of token first + t of `to`, with scales[h, first + t]. An element is its code times the
/// scale. `to` in i8: scale = the largest magnitude / 127, codes = x / scale, rounded to the nearest whole number and
/// ties to even. `to` in u8: scale = the largest magnitude / 448, codes = x / scale in E4M3 (arXiv 2209.05433), rounded
/// likewise. A head of zeros has the scale 0, and one with a value that is not finite the scale NaN; their codes are 0.
/// scales: [num_heads, tokens of the cache] f32; all is computed in f32.
struct EncodeHeads {
  Heads from, to;
  Tensor scales;
  int64_t first = 0, tokens = 0, num_heads = 0, head_dim = 0;

  template <class V>
  void visit(V& v) const {
    v("from", from.rows(tokens, num_heads, head_dim), kReads);
    v("to",
      StridedRows{to.base, to.offset + first * to.token_stride, tokens, to.token_stride, to.width(num_heads, head_dim),
                  num_heads * head_dim},
      kWrites);
    v("scales", StridedRows{scales, first, num_heads, scales.defined() ? scales.dim(-1) : 0, tokens, tokens}, kWrites);
    v("first", first);
    v("tokens", tokens);
    v("num_heads", num_heads);
    v("head_dim", head_dim);
  }
};

/// to[t] = sum over h of from[t, h], added in order of h: the gradient of a broadcast. `to` has one head.
struct SumHeads {
  Heads from, to;
  int64_t tokens = 0, num_heads = 0, head_dim = 0;

  template <class V>
  void visit(V& v) const {
    v("from", from.rows(tokens, num_heads, head_dim), kReads);
    v("to", to.rows(tokens, 1, head_dim), kWrites);
    v("tokens", tokens);
    v("num_heads", num_heads);
    v("head_dim", head_dim);
  }
};

/// Rotary embedding in place (arXiv 2104.09864) on the first rotary_dim elements of each head. Pairs are (i, i + r/2),
/// or (2i, 2i+1) when interleaved. cos, sin: [max_positions, rotary_dim / 2] f32 (f64 for f64); positions: [tokens]
/// i32. `inverse` rotates back: the gradient.
struct Rope {
  Heads x;
  Tensor cos, sin, positions;
  int64_t num_heads = 0, head_dim = 0, rotary_dim = 0;
  bool interleaved = false, inverse = false;

  template <class V>
  void visit(V& v) const {
    v("x", x.rows(positions.numel(), num_heads, head_dim, rotary_dim), kUpdates);
    v("cos", cos, kReads.of_rows(0));  // Few rows serve all heads of all sequences: they stay in the caches.
    v("sin", sin, kReads.of_rows(0));
    v("positions", positions, kReads);
    v("num_heads", num_heads);
    v("head_dim", head_dim);
    v("rotary_dim", rotary_dim);
    v("interleaved", interleaved);
    v("inverse", inverse);
  }
};

}  // namespace nought
