// SelfAttention: projections to queries, keys and values, positions, attention, and the projection back.
#pragma once

#include <optional>
#include <string>

#include "nought/nn/latent.h"
#include "nought/nn/linear.h"

namespace nought {

/// The sequences that the tokens of a batch form, one behind the other. A span's queries are its tokens; its keys are
/// the same, or with a cache all that lies in the cache from k_begin on when the span's own have joined.
struct Sequences {
  std::vector<AttentionSpan> spans;
  Tensor positions;  // [tokens] i32
};

/// The keys and values of sequences, kept between calls: generation reads them instead of computing them again.
struct KvCache {
  Tensor k, v;  // [tokens, num_kv_heads * head_dim], [tokens, num_kv_heads * value_dim]
};

/// Whether queries and keys are normalised before they are rotated: each head, or all heads of a token as one vector.
enum class QkNorm : uint8_t { none, per_head, whole };

class SelfAttention {
 public:
  struct Options {
    PackedHeads heads;
    double scale = 1;
    int64_t window = 0;
    double softcap = 0;
    Linear::Options qkv, out;
    std::optional<LatentProjection::Options> latent;  // instead of qkv
    std::string sinks;                                // the full name of the scores without a value; "": none
    double sink_std = 0.02;
    QkNorm qk_norm = QkNorm::none;
    std::string q_norm, k_norm;  // ".weight" is added
    double norm_eps = 1e-6, norm_weight_offset = 0;
  };
  SelfAttention() = default;
  SelfAttention(Unit& unit, const Options& options);
  /// tables may be null: no rotation. cache may be null; with one, nothing is recorded.
  Var operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables,
                 const KvCache* cache) const;

 private:
  /// Adds the keys and values of the tokens to the cache, and attends to what it holds.
  Tensor attend_cached(const Context& context, const Tensor& qkv, const Sequences& sequences,
                       const KvCache& cache) const;

  PackedHeads heads_;
  double scale_ = 1;
  int64_t window_ = 0;
  double softcap_ = 0;
  Linear qkv_, out_;
  std::optional<LatentProjection> latent_;
  ParameterView sinks_;
  std::optional<HeadNorms> norms_;
};

}  // namespace nought
