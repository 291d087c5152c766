// What a layer and the head take for a micro-batch on one rank: the work by its shapes, and what ranks exchange in it.
#pragma once

#include "nought/simulate/links.h"
#include "nought/simulate/run.h"

namespace nought {

/// Seconds of one layer, or the head, for a micro-batch. Exchanges are what is not hidden.
struct PassSeconds {
  double products = 0, attention = 0, memory = 0, tensor = 0, context = 0, expert = 0;

  double compute() const { return products + attention + memory; }
  double total() const { return compute() + tensor + context + expert; }
  PassSeconds& operator+=(const PassSeconds& other);
  PassSeconds operator*(double factor) const;
};

struct LayerSeconds {
  PassSeconds forward, backward;  // backward with its recomputation
  double hidden = 0;              // seconds of exchanges that are hidden, in both

  double total() const { return forward.total() + backward.total(); }
};

class LayerClock {
 public:
  /// The share of a memory's bandwidth that element-wise passes reach.
  static constexpr double kMemoryShare = 0.85;

  LayerClock(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted);

  /// A layer with an MLP, or with experts.
  LayerSeconds layer(bool has_experts) const;
  /// The head with the loss.
  LayerSeconds head() const;
  /// B/s of element-wise passes.
  double memory_rate() const { return cluster_.memory_bandwidth * kMemoryShare; }

 private:
  double product(double m, double n, double k, bool fp8, double efficiency = 1) const;
  PassSeconds forward(bool has_experts, double* hidden) const;
  double attention_products() const;
  double mlp_products(double width, double rows, double experts) const;
  double attention_seconds() const;
  double elementwise(bool has_experts) const;
  double tensor_exchange() const;
  double context_exchange() const;
  double expert_exchange() const;

  SimulatedRun run_;
  Cluster cluster_;
  FittedConstants fitted_;
  Links links_;
};

}  // namespace nought
