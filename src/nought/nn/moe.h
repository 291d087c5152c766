// Moe: a mixture of experts in place of an MLP. A router chooses a few experts for each token; a shared expert serves
// all.
//
// Design goals: tokens are sorted by expert, so that each expert is one matrix product. The router's logits and weights
// are fp32 in every dtype. What is saved for the backward pass does not grow with the number of experts. Ranks may
// share the matrices of every expert, as they share those of an MLP (arXiv 1909.08053): all of them route all tokens
// alike. Where ranks hold different experts, each routes its own tokens, and their rows travel to the experts and back
// (autograd/token_dispatch). The shared expert and the router are no part of that: every rank has them for its tokens.
#pragma once

#include <optional>
#include <string>

#include "nought/autograd/token_dispatch.h"
#include "nought/nn/mlp.h"
#include "nought/parallel/expert_ranks.h"

namespace nought {

/// How a checkpoint keeps the weights of the experts.
enum class ExpertStorage : uint8_t {
  separate,  // PREFIX.N.GATE.weight and .UP.weight: [F, H], PREFIX.N.DOWN.weight: [H, F]
  fused,     // PREFIX.gate_up_proj: [E, H, 2F] (gate and up in turn), PREFIX.down_proj: [E, F, H], and ..._bias
  halves     // the same without biases; all of gate, then all of up
};

class Moe {
 public:
  struct Options {
    int64_t hidden = 0;        // H
    int64_t intermediate = 0;  // F, of one expert
    int64_t num_experts = 0;   // E
    RouterRule rule;

    std::string router;  // ".weight" [E, H] is added, and with router_bias ".bias" [E]
    bool router_bias = false;
    std::string choice_bias;       // full name of [E] values that are added to choose experts and not trained; "": none
    bool choice_bias_row = false;  // they are declared as [1, E]

    std::string experts;  // PREFIX of ExpertStorage
    ExpertStorage storage = ExpertStorage::separate;
    std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
    ExpertActivation activation;
    bool scales_input = false;  // weights scale what experts read, and not what they give; top_k is 1
    /// Tiles of its Unit: each has a range of F of every expert, and the result is the sum over the tiles. None: the
    /// Unit has all of them.
    std::vector<Unit*> tiles = {};

    std::optional<Mlp::Options> shared;  // the shared expert: an MLP that all tokens pass
    std::string shared_gate;             // its result is multiplied by sigmoid(x . NAME.weight); "": it is not

    /// With drop_tokens an expert takes at most ceil(capacity_factor * tokens * top_k / num_experts) tokens of x, which
    /// are those of one rank and micro-batch, wherever the expert is. The tokens beyond that skip it; their order is
    /// (place among the token's choices, token). Weights are not renormalised.
    double capacity_factor = 0;
    bool drop_tokens = false;
    bool quantized_dispatch = false;  // rows travel to other ranks' experts as 8-bit codes

    double std = 0.02;           // standard deviation of the initial weights
    double residual_std = 0.02;  // the same for weights whose result is added to the residual stream

    /// Each holds some of the experts. Those of ranks.tensor() share F, outputs of gate and up, inputs of down; the
    /// last one has some of it.
    ExpertRanks ranks = {};
    TensorRanks slicing = {};  // x and the result are slices of the tokens of so many ranks

    /// What it adds to the router and to the experts' products, by their names in peft: NAME of the former, and
    /// PREFIX.gate_up_proj and PREFIX.down_proj, of all experts; null: nothing.
    const ModelAdapter* adapter = nullptr;
    std::string adapted_router, adapted_experts, adapted_shared_gate;  // NAME, PREFIX, and NAME of shared_gate
  };
  Moe() = default;
  /// Declares the parameters. The choice bias is never trained.
  Moe(Unit& unit, const Options& options);

  /// x, result: [tokens, hidden], or this rank's slice of the tokens. `log` may be null; `layer` is this layer's index
  /// in the log. All ranks that hold experts of the layer call it together, with tokens of their own or without any.
  Var operator()(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, int64_t layer,
                 const TokenSlices& slices = {}) const;

 private:
  /// What one tile has of all experts, or the whole layer.
  struct Part {
    Unit* tile = nullptr;
    ExpertWeights weights;
  };
  void declare_adapter(Unit& unit, const Options& options);
  /// The logits of this rank's tokens, with what an adapter adds.
  static Var logits_of(Tape& tape, const Var& x, const ParameterView& router, const ParameterView& bias,
                       const AdapterProducts& added);
  Var shared_expert(Tape& tape, const Var& x, const TokenSlices& slices) const;

  RouterRule rule_;
  int64_t num_experts_ = 0;
  double capacity_factor_ = 0;  // 0: no token is dropped
  bool quantized_dispatch_ = false, scales_input_ = false;
  ParameterView router_, router_bias_, choice_bias_, shared_gate_;
  AdapterProducts router_added_, shared_gate_added_;
  std::vector<Part> parts_;
  ExpertActivation activation_;
  std::optional<Mlp> shared_;
  ExpertRanks ranks_;
};

}  // namespace nought
