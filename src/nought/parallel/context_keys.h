// PackedKeys: keys and values as ranks exchange them: those of some key/value heads, without the queries and
// un-repeated.
#pragma once

#include <vector>

#include "nought/autograd/attention.h"

namespace nought {

/// Where keys and values lie.
struct KeyHeads {
  Heads k, v;
};

/// The key/value heads `held` of a packed projection, [tokens, k | v]. Their query heads are those that read them.
struct PackedKeys {
  PackedHeads whole;  // of the packed projection
  Interval held;

  explicit PackedKeys(const PackedHeads& heads) : PackedKeys(heads, {0, heads.num_kv_heads}) {}
  PackedKeys(const PackedHeads& heads, Interval kv_heads) : whole(heads), held(kv_heads) {}

  int64_t width() const { return held.size() * (whole.head_dim + whole.value_dim()); }
  KeyHeads in(const Tensor& keys) const { return {{keys, 0, width()}, {keys, held.size() * whole.head_dim, width()}}; }
  /// Where the same heads lie in a packed projection.
  KeyHeads within(const Tensor& qkv) const {
    return {from(whole.k(qkv), whole.head_dim, held.begin), from(whole.v(qkv), whole.value_dim(), held.begin)};
  }
  Heads queries(const Tensor& qkv) const { return from(whole.q(qkv), whole.head_dim, query_heads().begin); }
  Interval query_heads() const {
    const int64_t readers = whole.num_heads / whole.num_kv_heads;
    return {held.begin * readers, held.end * readers};
  }
  /// What attention of these query heads gives, per token.
  int64_t out_width() const { return query_heads().size() * whole.value_dim(); }

  /// keys, [tokens, width()] = those heads of a packed projection.
  void pack(const Context& context, const Tensor& qkv, const Tensor& keys) const;
  /// Adds keys, or gradients of them, to those heads of a packed projection of the same dtype.
  void add_to(const Context& context, const Tensor& keys, const Tensor& qkv) const;

  /// The shape of attention of these heads.
  AttentionShape shape(const AttentionOptions& options, std::vector<AttentionSpan> spans) const;

 private:
  /// Heads from `first` on. They keep their stride, whoever reads how many of them.
  static Heads from(Heads heads, int64_t head_dim, int64_t first) {
    heads.head_stride = heads.stride(head_dim);
    heads.offset += first * heads.head_stride;
    return heads;
  }
};

/// x itself if it has this dtype, or else rounded to it.
Tensor as_dtype(const Context& context, const Tensor& x, DType dtype);

}  // namespace nought
