// SelfAttention: the attention layer of a block. It projects to queries, keys and values, applies positions, attends,
// and projects back.
#pragma once

#include <optional>
#include <string>

#include "nought/nn/kv_cache.h"
#include "nought/nn/latent.h"
#include "nought/nn/linear.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

/// The sequences that the tokens of a batch form, one behind the other. Each span is one sequence; its tokens are its
/// queries. Without a cache the same tokens are its keys. With a cache, its keys are the k_length tokens of the cache
/// from k_begin on; the span's own keys are appended before attention reads them. Where ranks hold parts of the
/// sequences, spans are those of all tokens, and the other fields are those of this rank's.
struct Sequences {
  std::vector<AttentionSpan> spans;
  Tensor positions;            // [tokens] i32
  TokenSlices slices = {};     // those that ranks have between attention and the other layers
  ContextTokens context = {};  // the ranks that hold parts of the sequences
};

/// How queries and keys are normalised before they are rotated.
enum class QkNorm : uint8_t {
  none,       // not at all
  per_head,   // each head by itself
  whole,      // all heads of a token as one vector
  unweighted  // each head by itself, and no weight scales it
};

class SelfAttention {
 public:
  struct Options {
    PackedHeads heads;  // those of this rank
    TensorRanks ranks = {};
    bool shared_heads =
        false;           // the ranks outnumber the key/value heads: `qkv` gives each an even part of their columns
    double scale = 1;    // factor on the scores
    bool causal = true;  // false: a token sees later ones, too
    int64_t window = 0;  // sliding window: a token sees so many tokens to a side, itself included; 0: all
    int64_t chunk = 0;   // a token sees those of its chunk of so many tokens alone; 0: there are no chunks
    double softcap = 0;  // scores become softcap * tanh(score / softcap); 0: they stay
    Linear::Options qkv, out;
    std::optional<LatentProjection::Options> latent;  // instead of qkv
    std::string sinks;                                // full name of the parameter with attention sinks; "": none
    double sink_std = 0.02;
    /// q has a gate behind each head, as wide: what is attended is multiplied by its sigmoid.
    bool output_gate = false;
    QkNorm qk_norm = QkNorm::none;
    /// The features of q and of k that a norm weighs: of one head, or of the heads of all ranks.
    int64_t q_norm_features = 0, k_norm_features = 0;
    std::string q_norm, k_norm;  // ".weight" is added
    double norm_eps = 1e-6, norm_weight_offset = 0;
    double clip = 0;  // queries, keys and values stay within [-clip, clip] before positions are applied; 0: they stay
  };
  SelfAttention() = default;
  SelfAttention(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens. Without `tables` nothing is rotated. With a
  /// `cache` the tape must not record. query_factors: see scale_queries(); null: queries stay.
  Var operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables, const KvCache* cache,
                 const RopeTables* query_factors = nullptr) const;

 private:
  /// Appends the keys and values of the tokens to the cache, then attends to what the cache holds.
  Tensor attend_cached(const Context& context, const Tensor& qkv, const Sequences& sequences,
                       const KvCache& cache) const;

  /// The spans of the sequences, or of each chunk of them.
  std::vector<AttentionSpan> spans_of(const Sequences& sequences) const;
  /// Takes the gates out of what was projected, which becomes q | k | v; undefined without gates.
  Var take_gate(Tape& tape, Var& qkv) const;
  /// What the projection gives: heads_, or queries and slices of what ranks share.
  PackedHeads projected_heads() const;

  PackedHeads heads_;
  TensorRanks ranks_;
  bool shared_heads_ = false, output_gate_ = false;
  double scale_ = 1;
  bool causal_ = true;
  int64_t window_ = 0, chunk_ = 0;
  double softcap_ = 0, clip_ = 0;
  Linear qkv_, out_;
  std::optional<LatentProjection> latent_;
  ParameterView sinks_;
  std::optional<HeadNorms> norms_;
};

}  // namespace nought
