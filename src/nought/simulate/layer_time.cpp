#include "nought/simulate/layer_time.h"

#include <algorithm>

namespace nought {

namespace {

constexpr double kHalf = 2;    // bytes of bf16
constexpr double kScore = 24;  // elements of a head that a score costs as much as

}  // namespace

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  products += other.products;
  attention += other.attention;
  memory += other.memory;
  tensor += other.tensor;
  context += other.context;
  expert += other.expert;
  return *this;
}

PassSeconds PassSeconds::operator*(double factor) const {
  return {products * factor, attention * factor, memory * factor, tensor * factor, context * factor, expert * factor};
}

LayerClock::LayerClock(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted)
    : run_(run), cluster_(cluster), fitted_(fitted), links_(cluster, fitted) {}

/// [m, k] x [k, n]. Each dimension that is small makes it slower.
double LayerClock::product(double m, double n, double k, bool fp8, double efficiency) const {
  const double knee = fitted_.knee;
  const double full = m / (m + knee) * n / (n + knee) * k / (k + knee);
  const double peak = fp8 && cluster_.flops.fp8 > 0 ? cluster_.flops.fp8 * fitted_.fp8 : cluster_.flops.bf16;
  return 2 * m * n * k / (peak * cluster_.efficiency * fitted_.products * efficiency * full);
}

double LayerClock::attention_products() const {
  const ModelShape& m = run_.model;
  const double rows = run_.tokens(), t = run_.tp;
  const bool fp8 = run_.products == Products::fp8;
  if (m.kv_rank == 0)
    return product(rows, (m.query_width() + 2 * m.kv_heads * m.head_dim) / t, m.hidden, fp8) +
           product(rows, m.hidden, m.query_width() / t, fp8);
  const double queries = m.heads * (m.own_dim + m.shared_dim) / t;
  double seconds = product(rows, m.kv_rank + m.shared_dim, m.hidden, fp8) +
                   product(rows, m.heads * (m.own_dim + m.value_dim) / t, m.kv_rank, fp8) +
                   product(rows, m.hidden, m.heads * m.value_dim / t, fp8);
  if (m.q_rank > 0)
    seconds += product(rows, m.q_rank, m.hidden, fp8) + product(rows, queries, m.q_rank, fp8);
  else
    seconds += product(rows, queries, m.hidden, fp8);
  return seconds;
}

/// Both products of MLPs, of which there are `experts` that share out the rows.
double LayerClock::mlp_products(double width, double rows, double experts) const {
  const bool fp8 = run_.products == Products::fp8, grouped = experts > 1;
  const double efficiency = grouped ? fitted_.experts : 1;
  return experts * (product(rows / experts, width * run_.model.gates(), run_.model.hidden, fp8, efficiency) +
                    product(rows / experts, run_.model.hidden, width, fp8, efficiency));
}

/// Fused attention computes the causal half. What is not fused computes the whole square and moves it through memory,
/// about five times in each direction.
double LayerClock::attention_seconds() const {
  const ModelShape& m = run_.model;
  const double square = run_.micro_batch * run_.sequence * run_.sequence / run_.cp / run_.tp;
  const double scores = m.kv_rank > 0 ? m.heads * (m.own_dim + m.shared_dim) : m.query_width();
  const double width = (scores + m.value_width()) / m.heads / 2;
  const double flops = square * (scores + m.value_width());  // of the causal half
  const double peak = cluster_.flops.bf16 * cluster_.efficiency;
  const double narrow = width / (width + kScore) * (128 + kScore) / 128;
  if (run_.software.fused_attention) return flops / (peak * fitted_.attention * run_.software.attention * narrow);
  constexpr double kMoved = 10;
  return 2 * flops / (peak * fitted_.products * narrow) + kMoved * m.heads * square / memory_rate();
}

/// Passes over what is as wide as the residual stream, which tensor ranks share only with sequence parallelism; and
/// over the MLP's width.
double LayerClock::elementwise(bool has_experts) const {
  const ModelShape& m = run_.model;
  constexpr double kShared = 0.3;  // the share of passes between both products, which tensor ranks share in any case
  constexpr double kMlp = 1.5;
  const double shared = run_.sequence_parallel ? 1 / run_.tp : (1 - kShared) + kShared / run_.tp;
  double bytes = run_.tokens() * m.hidden * kHalf * fitted_.passes * shared;
  if (has_experts) {
    const double rows = run_.tokens() * m.top_k / run_.tp;
    bytes += rows * kHalf * (m.hidden * fitted_.permutation + m.expert_ffn * m.gates() * kMlp);
    bytes += run_.tokens() * kHalf * m.shared_ffn * m.gates() * kMlp / run_.tp;
  } else {
    bytes += run_.tokens() * kHalf * m.ffn * m.gates() * kMlp / run_.tp;
  }
  return bytes * run_.software.eager / memory_rate();
}

/// Two all-reduces, or as many gathers and scatters, which take the same.
double LayerClock::tensor_exchange() const {
  const double bytes = run_.tokens() * run_.model.hidden * kHalf;
  const RankGroup group{run_.tp, 1};
  if (!run_.sequence_parallel) return 2 * links_.all_reduce(bytes, group);
  return 2 * (links_.all_gather(bytes, group) + links_.reduce_scatter(bytes, group));
}

/// Keys and values of the other ranks, one hop after another.
double LayerClock::context_exchange() const {
  const ModelShape& m = run_.model;
  if (run_.cp <= 1) return 0;
  const double bytes = 2 * run_.tokens() * m.kv_heads * m.head_dim * kHalf / run_.tp;
  return (run_.cp - 1) * links_.message(bytes, run_.tp * run_.cp - 1);
}

/// Rows go to their experts and come back: to another domain once, however many of its experts a token passes.
double LayerClock::expert_exchange() const {
  if (run_.ep <= 1) return 0;
  const double row = run_.model.hidden * kHalf, tokens = run_.tokens() / run_.tp;
  return 2 * links_.to_experts(tokens * row, run_.model.top_k, {run_.ep, run_.tp * run_.cp});
}

PassSeconds LayerClock::forward(bool has_experts, double* hidden) const {
  const ModelShape& m = run_.model;
  PassSeconds pass;
  pass.products = attention_products();
  if (has_experts) {
    const double local = std::max(m.experts / run_.ep, 1.0);
    pass.products += mlp_products(m.expert_ffn, run_.tokens() * m.top_k / run_.tp, local);
    if (m.shared_ffn > 0) pass.products += mlp_products(m.shared_ffn / run_.tp, run_.tokens(), 1);
  } else {
    pass.products += mlp_products(m.ffn / run_.tp, run_.tokens(), 1);
  }
  pass.attention = attention_seconds();
  pass.memory = elementwise(has_experts) + fitted_.operations;
  const double tensor = tensor_exchange(), expert = has_experts ? expert_exchange() : 0, context = context_exchange();
  pass.tensor = tensor * (run_.software.hides_tensor ? 1 - fitted_.overlap : 1);
  // DualPipe runs the passes of two micro-batches at once, which hides all of it.
  pass.expert = run_.schedule == SimulatedSchedule::dual_pipe ? std::max(expert - pass.compute(), 0.0) : expert;
  pass.context = std::max(context - pass.attention, 0.0);
  *hidden += tensor + expert + context - pass.tensor - pass.expert - pass.context;
  return pass;
}

LayerSeconds LayerClock::layer(bool has_experts) const {
  LayerSeconds layer;
  layer.forward = forward(has_experts, &layer.hidden);
  const PassSeconds& f = layer.forward;
  layer.backward = f * 2;
  layer.backward.attention = f.attention * (run_.software.fused_attention ? 2.5 : 2);
  layer.backward.tensor = f.tensor * (run_.sequence_parallel ? 1.5 : 1);
  layer.backward.expert = f.expert;
  layer.hidden *= 2;
  PassSeconds again;
  switch (run_.recompute) {
    case Recomputed::none:
      break;
    case Recomputed::light:
      again.memory = f.memory;
      break;
    case Recomputed::attention:
      if (!run_.software.fused_attention) again.attention = f.attention;
      break;
    case Recomputed::products:
      again.memory = f.memory;
      again.products = f.products / 2;
      break;
    case Recomputed::full:
      again = f;
      break;
  }
  layer.backward += again;
  return layer;
}

LayerSeconds LayerClock::head() const {
  const ModelShape& m = run_.model;
  LayerSeconds head;
  const double width = m.vocab / run_.tp;
  head.forward.products = product(run_.tokens(), width, m.hidden, false);
  // Logits are written, and read in f32 for the loss and its gradient.
  constexpr double kForward = 10, kBackward = 8;
  head.forward.memory = run_.tokens() * width * kForward / memory_rate();
  head.backward.products = 2 * head.forward.products;
  head.backward.memory = run_.tokens() * width * kBackward / memory_rate();
  return head;
}

}  // namespace nought
