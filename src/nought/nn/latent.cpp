#include "nought/nn/latent.h"

#include "nought/parallel/conjugate.h"

namespace nought {

LatentProjection::LatentProjection(Unit& unit, const Options& options)
    : q_rank_(options.q_rank), kv_rank_(options.kv_rank), ranks_(options.kv_up.ranks) {
  if (q_rank_ > 0) {
    q_down_ = Linear(unit, options.q_down);
    q_norm_ = Norm(unit, options.q_norm, NormKind::rms, q_rank_, options.norm_eps);
  }
  q_up_ = Linear(unit, options.q_up);
  kv_down_ = Linear(unit, options.kv_down);
  kv_norm_ = Norm(unit, options.kv_norm, NormKind::rms, kv_rank_, options.norm_eps);
  kv_up_ = Linear(unit, options.kv_up);
}

Var LatentProjection::operator()(Tape& tape, const Var& x, const PackedHeads& heads) const {
  const Var q = q_up_(tape, q_rank_ > 0 ? q_norm_(tape, q_down_(tape, x)) : x);
  const Var down = kv_down_(tape, x);  // [tokens, kv_rank + shared part of k]
  const Var latent = kv_norm_(tape, columns(tape, down, 0, kv_rank_));
  const Var shared_key = copy_to_ranks(tape, columns(tape, down, kv_rank_, down.value.dim(-1)), ranks_);
  return pack_latent(tape, q, kv_up_(tape, latent), shared_key, heads);
}

}  // namespace nought
