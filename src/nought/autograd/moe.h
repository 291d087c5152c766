// The differentiable functions of mixtures of experts: routing, the experts, and the loss that balances them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nought/autograd/tape.h"
#include "nought/comm/communicator.h"

namespace nought {

/// What the routers of one forward pass chose, layer by layer: for the auxiliary loss and for metrics. They are the
/// choices of this rank's tokens, wherever the experts are. A layer that is computed again (recomputation) writes the
/// same numbers again. Where memory is only counted, every expert is chosen as often as any other (GroupByExpert).
class RouterLog {
 public:
  struct Layer {
    std::vector<int64_t> load;     // tokens that chose each expert, dropped ones included
    Tensor probability_sums = {};  // [E] f64, over tokens, of softmax(logits)
    int64_t tokens = 0;
    int64_t dropped = 0;  // choices beyond the expert's capacity
  };
  /// counts: false if the tokens stand for none (Batch::placeholder), and are no part of the means.
  explicit RouterLog(int64_t num_layers, bool counts = true)
      : layers_(static_cast<size_t>(num_layers)), counts_(counts) {}

  bool counts() const { return counts_; }

  const std::vector<Layer>& layers() const { return layers_; }
  Layer& layer(int64_t index) { return layers_.at(static_cast<size_t>(index)); }

  /// Where ranks hold different layers: begins to tell them what this one's routers chose, so that sums() are of all
  /// layers. After the forward pass. Collective; it must come in the same order of micro-batches on all `stages`.
  void share(const Context& context, int64_t experts, Communicator& stages);
  /// After the forward pass: what BalanceLoss reads, summed over all layers and over the ranks that share the batch.
  /// weight: what this rank's targets count in the mean loss. Tokens count in the means whether they have targets or
  /// not, as they do where one rank reads them beside others. Collective; the host does not wait.
  Tensor sums(const Context& context, double weight, Communicator& ranks) const;

  /// From here on, routers that are walked back add this gradient of each probability of any of this rank's tokens:
  /// [E] f64, or undefined for none.
  void set_probability_gradient(Tensor gradient) { probability_gradient_ = std::move(gradient); }
  const Tensor& probability_gradient() const { return probability_gradient_; }

 private:
  /// The sums over this rank's tokens.
  Tensor local_sums(const Context& context, double weight) const;
  Tensor shared_sums(const Context& context, double weight) const;

  std::vector<Layer> layers_;
  bool counts_;
  Tensor probability_gradient_;
  // After share(): for each layer the choices of each expert, the sums of probabilities and the tokens, f64.
  Tensor shared_;
  Event arrival_;
  Communicator* stages_ = nullptr;
};

/// What routers chose over several forward passes: for metrics.
struct RouterLoads {
  std::vector<std::vector<double>> chosen;  // for each layer, the tokens that chose each expert, dropped ones included
  double dropped = 0;                       // choices beyond an expert's capacity, of all layers

  void add(const RouterLog& log);
  /// The counts of all ranks and of all layers, as [1 + layers * experts] f64 on the device. Collective; the host does
  /// not wait.
  Tensor summed(const Context& context, int64_t experts, Communicator& ranks) const;
  /// What summed() gave, of so many layers.
  static RouterLoads of(std::span<const double> sums, size_t layers);
  bool empty() const { return chosen.empty(); }
  /// Choices of all layers.
  double choices() const;
  /// The choices of the busiest expert of any layer over those of an expert when all have as many; 1 is balanced.
  double imbalance() const;
};

/// x W^T + b in fp32 (f64 for f64): [tokens, experts]. x: [tokens, hidden], weight: [experts, hidden], bias: [experts]
/// or undefined. Both directions multiply fp32 values: a router's choice hangs on small differences.
Var router_logits(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias);

/// logits + x, in place of the logits, which may be wider than x.
Var add_widened(Tape& tape, const Var& logits, const Var& x);

/// The experts that tokens chose, and the weights of the choices as a value that has a gradient.
struct Routing {
  Tensor experts;  // [tokens, top_k] i32
  Var weights;     // [tokens, top_k] f32
};
/// choice_bias may be undefined; it has no gradient. `log` may be null; the layer's tokens and probabilities are
/// written to it (load and dropped are known when the tokens are grouped). Whatever the log's probability gradient is
/// when the backward walk comes here takes part in the gradient of the logits.
Routing route(Tape& tape, const Var& logits, const RouterRule& rule, const ParameterView& choice_bias,
              const std::shared_ptr<RouterLog>& log, int64_t layer);

/// loss + weight * coefficient * (the auxiliary loss). weight: what this rank's batch counts in the mean loss, so that
/// the mean over all ranks is the mean loss + coefficient * auxiliary loss. gradient_scale is that of the loss. Call it
/// after all layers ran. All `ranks` (Group::balance) call it together.
Var add_auxiliary_loss(Tape& tape, const Var& loss, const std::shared_ptr<RouterLog>& log, double weight,
                       double coefficient, double gradient_scale, Communicator& ranks);

/// On ranks that hold none of the layers behind: x. Its backward pass, the first of them, gives the routers the
/// gradient that add_auxiliary_loss() gives those of the rank that has the loss. After RouterLog::share().
Var expect_auxiliary_gradient(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, double weight,
                              double coefficient, double gradient_scale, Communicator& ranks);

/// The rows of tokens sorted by expert (GroupByExpert of kernels/ops.h): each expert's rows are one contiguous block.
struct ExpertRows {
  Tensor token, pair;            // [rows] i32: the token, and the place in [tokens * top_k]; -1 for padding
  Tensor row;                    // [tokens, top_k] i32; -1 for a dropped choice
  std::vector<Interval> blocks;  // The block of each expert, padding included.
  std::vector<int64_t> load;     // The tokens that chose each expert, dropped ones included.
  int64_t capacity = 0;          // The most choices that an expert takes; 0: all.
  int64_t dropped = 0;
  int64_t most = 0;  // rows() of whatever choices
  int64_t rows() const { return blocks.empty() ? 0 : blocks.back().end; }
};
/// Runs GroupByExpert and waits for its counts, which say where the blocks lie. capacity 0: unlimited.
ExpertRows group_by_expert(const Context& context, const Tensor& experts, int64_t num_experts, int64_t capacity);

/// What is added to the products of each expert: y += scale * (x -> rank) -> outputs.
struct ExpertLowRank {
  ParameterView shrink, expand;  // out_in: [E, rank, in], [E, out, rank]; else [E, in, rank], [E, rank, out].
                                 // Undefined: nothing is added
  double scale = 1;
  bool out_in = true;

  bool defined() const { return shrink.defined(); }
  bool trained() const { return shrink.trained() || expand.trained(); }
};
/// The weights of all experts. out_in: gate_up [E, 2F, H], down [E, H, F]; in_out: [E, H, 2F] and [E, F, H]. Biases,
/// [E, 2F] and [E, H], may be undefined.
struct ExpertWeights {
  WeightView gate_up = {}, down = {};
  ParameterView gate_up_bias = {}, down_bias = {};
  bool out_in = true;
  /// False where ranks share F and another one adds down_bias to the sum of their results. Its gradient is formed here
  /// too, from d_out, which is the same on all of them.
  bool adds_down_bias = true;
  ExpertLowRank gate_up_added = {}, down_added = {};  // what an adapter adds to the products of each expert
};
/// activation(gate) * up with [gate | up] per row, or ClampedSwiglu, which has gate and up in turn.
struct ExpertActivation {
  Activation activation = Activation::silu;
  bool clamped = false;
  double limit = 7, alpha = 1.702;  // if clamped

  bool operator==(const ExpertActivation&) const = default;
};
class TokenDispatch;  // how rows come to experts (autograd/token_dispatch.h): of ExpertRows, or over ranks
/// out[t] = sum over the token's choices of weight * expert(x[t]): [tokens, hidden]. experts: those that are here.
/// Saves x and the gate_up products, and where ranks exchange rows those that came.
Var run_experts(Tape& tape, const Var& x, const Var& weights, const TokenDispatch& dispatch,
                const ExpertWeights& experts, const ExpertActivation& activation);

/// y[t] * weights[t]. weights: [tokens, 1], f32 (f64 for f64).
Var scale_rows(Tape& tape, const Var& y, const Var& weights);

}  // namespace nought
