// KvCache: the keys and values of sequences, kept between calls, so that generation does not compute them again.
//
// They are kept in the dtype that the model computes in, or in another one: a float dtype, or codes of 8 bits with a
// scale for each head of each token, which attention reads as they are.
#pragma once

#include <string>

#include "nought/autograd/attention.h"

namespace nought {

struct KvCache {
  Tensor k, v;                          // [tokens, num_kv_heads * head_dim], [tokens, num_kv_heads * value_dim]
  Tensor k_scales = {}, v_scales = {};  // of codes: [num_kv_heads, tokens] f32

  /// Writes the keys and values of a span's queries, which the packed heads of qkv hold, behind those that the cache
  /// has of its sequence.
  void append(const Context& context, const PackedHeads& heads, const Tensor& qkv, const AttentionSpan& span) const;
  /// The first `count` tokens from `to` on become those from `from` on.
  void copy(const Context& context, int64_t from, int64_t to, int64_t count) const;
};

/// Without values yet. kept: the dtype of keys and values, i8 or u8 (E4M3) for codes. ConfigError if that is another
/// one than `computed`, in which the model computes, and the cache is not in the memory of a host.
KvCache make_kv_cache(const Context& context, const PackedHeads& heads, int64_t tokens, DType kept, DType computed);

/// The bytes of a token of one layer.
int64_t kv_cache_bytes(const PackedHeads& heads, DType kept);

/// The dtype that --kv-dtype names: bf16, f16, f32, fp8 (u8) or int8 (i8). ConfigError names what there is.
DType kv_dtype_named(const std::string& name);
/// Its name there; that of the dtype itself if there is none.
std::string kv_dtype_name(DType kept);

}  // namespace nought
