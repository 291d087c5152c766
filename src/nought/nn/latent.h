// LatentProjection: queries, keys and values through narrow latent vectors (multi-head latent attention, arXiv
// 2405.04434).
#pragma once

#include <string>

#include "nought/nn/linear.h"
#include "nought/nn/norm.h"

namespace nought {

/// Keys and values of all heads come from one latent vector of the token. All heads share the rotated part of k.
/// Ranks may share the heads: each forms the latent vectors by itself, and queries, keys and values of its own heads.
class LatentProjection {
 public:
  struct Options {
    int64_t q_rank = 0;              // size of the queries' latent vector; 0: they have none
    int64_t kv_rank = 0;             // size of the latent vector of keys and values
    Linear::Options q_down, q_up;    // without q_rank only q_up is used
    Linear::Options kv_down, kv_up;  // the result of kv_down is [latent | shared part of k]; ups may be cut by outputs
    std::string q_norm, kv_norm;     // names of the latent vectors' norms
    double norm_eps = 1e-6;
  };
  LatentProjection() = default;
  LatentProjection(Unit& unit, const Options& options);
  /// x: [tokens, hidden]. Result: the packed [q | k | v] of PackedHeads, [tokens, heads.width()].
  Var operator()(Tape& tape, const Var& x, const PackedHeads& heads, const TokenSlices& slices = {}) const;

 private:
  int64_t q_rank_ = 0, kv_rank_ = 0;
  Linear q_down_, q_up_, kv_down_, kv_up_;
  Norm q_norm_, kv_norm_;
  TensorRanks ranks_;
};

}  // namespace nought
