#include "nought/simulate/memory.h"

#include <algorithm>
#include <cmath>

namespace nought {

namespace {

constexpr double kHalfBytes = 2, kStateBytes = 12;
constexpr double kHeadRows = 2048;                      // of logits that are formed at once
constexpr double kProductWorkspace = 32 * 1024 * 1024;  // bytes, the most that the library of products chooses

struct Held {
  double all = 0;      // elements of a rank, experts not counted
  double experts = 0;  // elements of its experts
  double layer = 0;    // elements of a layer that is gathered as one
  double end = 0;      // of the embedding, or of the head
};

Held held_by(const SimulatedRun& run) {
  const ModelShape& m = run.model;
  const double layers = std::ceil(m.layers / run.pp), share = m.expert_layers() / m.layers;
  Held held;
  const double mlp = (1 - share) * m.mlp_parameters() + share * m.shared_parameters();
  held.layer = (m.attention_parameters() + mlp + share * m.expert_parameters() / run.ep) / run.tp;
  held.end = m.embedding_parameters() / run.tp;
  held.experts = layers * share * m.expert_parameters() / run.ep / run.tp;
  held.all = layers * (m.attention_parameters() + mlp) / run.tp + held.end;
  if (run.pp == 1 && !m.tied) held.all += m.hidden * m.vocab / run.tp;
  return held;
}

/// Bytes that a layer keeps of a token for its backward pass.
double kept_by_layer(const SimulatedRun& run) {
  const ModelShape& m = run.model;
  const double whole = run.sequence_parallel ? run.tp : 1;
  if (run.recompute == Recomputed::full) return m.hidden * kHalfBytes / whole;
  const bool formed_again = run.recompute == Recomputed::light;
  const double share = m.layers > 0 ? m.expert_layers() / m.layers : 0;
  const double attended = m.kv_rank > 0
                              ? m.heads * (2 * (m.own_dim + m.shared_dim) + 2 * m.value_dim) + m.q_rank + m.kv_rank
                              : 2 * m.query_width() + 2 * m.kv_heads * m.head_dim;
  const double mlp_parts = m.gates() + (formed_again ? 0 : 1);
  double mlp = (1 - share) * m.ffn * mlp_parts + share * m.shared_ffn * mlp_parts;
  mlp += share * m.top_k * m.expert_ffn * m.gates();
  return ((formed_again ? 2 : 4) * m.hidden / whole + (attended + mlp) / run.tp) * kHalfBytes + 4 * m.heads / run.tp +
         8 / whole;
}

}  // namespace

SimulatedMemory simulate_memory(const SimulatedRun& run, double gradient_bytes) {
  const ModelShape& m = run.model;
  const Held held = held_by(run);
  const double ranks = run.dp * run.cp, expert_ranks = std::max(ranks / run.ep, 1.0);
  const auto shared = [&](bool shards) {
    return shards ? held.all / ranks + held.experts / expert_ranks : held.all + held.experts;
  };
  // Two neighbouring Units are whole at once.
  const double gathered = held.layer + std::max(held.end, held.layer);
  SimulatedMemory memory;
  memory.parameters = kHalfBytes * (shared(run.zero_stage >= 3) + (run.zero_stage >= 3 && ranks > 1 ? gathered : 0));
  memory.gradients = gradient_bytes * (shared(run.zero_stage >= 2) + (run.zero_stage >= 2 && ranks > 1 ? gathered : 0));
  memory.optimizer = run.offload_states ? 0 : kStateBytes * shared(run.zero_stage >= 1);
  const double layers = std::ceil(m.layers / run.pp), tokens = run.tokens();
  SimulatedRun plain = run;
  plain.recompute = Recomputed::none;
  const double working = run.recompute == Recomputed::full ? tokens * kept_by_layer(plain) : 0;
  const double passing = kHalfBytes * (4 * m.hidden + std::max(m.ffn, m.top_k * m.expert_ffn) / run.tp);
  memory.activations = tokens * (run.in_flight() * layers * kept_by_layer(run) + passing) + working;
  // The head's backward pass ends before the first layer's begins.
  const double logits = run.pp == 1 ? std::min(tokens, kHeadRows) * m.vocab / run.tp * 4 : 0;
  memory.workspace = kProductWorkspace + std::max(logits - working, 0.0);
  return memory;
}

}  // namespace nought
