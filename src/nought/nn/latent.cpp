#include "nought/nn/latent.h"

#include "nought/parallel/conjugate.h"

namespace nought {

LatentProjection::LatentProjection(Unit& unit, const Options& options)
    : q_rank_(options.q_rank), kv_rank_(options.kv_rank), ranks_(options.kv_up.ranks) {
  const auto norm = [&](const std::string& name, int64_t features) {
    return Norm(unit, name, {.features = features, .eps = options.norm_eps, .slicing = options.kv_down.slicing});
  };
  if (q_rank_ > 0) {
    q_down_ = Linear(unit, options.q_down);
    q_norm_ = norm(options.q_norm, q_rank_);
  }
  q_up_ = Linear(unit, options.q_up);
  kv_down_ = Linear(unit, options.kv_down);
  kv_norm_ = norm(options.kv_norm, kv_rank_);
  kv_up_ = Linear(unit, options.kv_up);
}

Var LatentProjection::operator()(Tape& tape, const Var& x, const PackedHeads& heads, const TokenSlices& slices) const {
  const Var q = q_up_(tape, q_rank_ > 0 ? q_norm_(tape, q_down_(tape, x)) : x, slices);
  const Var down = kv_down_(tape, x);  // [tokens, kv_rank + shared part of k]
  const Var latent = kv_norm_(tape, columns(tape, down, 0, kv_rank_));
  const Var shared_key = enter_ranks(tape, columns(tape, down, kv_rank_, down.value.dim(-1)), ranks_, slices);
  return pack_latent(tape, q, kv_up_(tape, latent, slices), shared_key, heads);
}

}  // namespace nought
