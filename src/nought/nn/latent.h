// LatentProjection: queries, keys and values through narrow latent vectors (multi-head latent attention, arXiv
// 2405.04434).
#pragma once

#include <string>

#include "nought/nn/linear.h"
#include "nought/nn/norm.h"

namespace nought {

/// Result: the packed [q | k | v] of PackedHeads. Keys and values of a head come from one latent vector of the token,
/// and the rotated part of k is shared by all heads.
class LatentProjection {
 public:
  struct Options {
    int64_t q_rank = 0;  // 0: queries are projected at once
    int64_t kv_rank = 0;
    Linear::Options q_down, q_up;    // q_up alone without q_rank
    Linear::Options kv_down, kv_up;  // kv_down's result is [latent | shared part of k]
    std::string q_norm, kv_norm;     // of the latent vectors
    double norm_eps = 1e-6;
  };
  LatentProjection() = default;
  LatentProjection(Unit& unit, const Options& options);
  Var operator()(Tape& tape, const Var& x, const PackedHeads& heads) const;

 private:
  int64_t q_rank_ = 0, kv_rank_ = 0;
  Linear q_down_, q_up_, kv_down_, kv_up_;
  Norm q_norm_, kv_norm_;
};

}  // namespace nought
