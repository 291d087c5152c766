// Decoder: the one decoder-only transformer, built from a ModelConfig; families differ in options, not in code.
//
// Its Units are the embedding, each block, and the head (final norm and output projection, which a tied model borrows
// from the embedding).
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nought/models/config.h"
#include "nought/models/names.h"
#include "nought/nn/model.h"
#include "nought/nn/objective.h"

namespace nought {

/// The keys and values of every layer for sequences of at most `capacity` tokens: sequence s has the rows from
/// s * capacity on.
struct DecoderCache {
  std::vector<KvCache> layers;
  int64_t capacity = 0;
  std::vector<std::vector<int32_t>> ids;  // of each sequence, the tokens held
};

/// The tokens that one sequence of a cache goes on with.
struct NextTokens {
  int64_t sequence = 0;
  std::span<const int32_t> ids;
};

class Decoder final : public Model {
 public:
  /// recompute: of blocks in the backward pass. fp8: of the linear layers of blocks, experts aside.
  explicit Decoder(const ModelConfig& config, const RecomputeOptions& recompute = {}, const Fp8Options& fp8 = {});

  Var loss(Tape& tape, const Batch& batch, double gradient_scale) override;
  /// What loss() computes from the logits; cross-entropy unless this is called.
  void set_objective(std::shared_ptr<const Objective> objective) { objective_ = std::move(objective); }
  /// The logits of every token of the batch, [rows * length, vocabulary]. Targets are not used.
  Tensor logits(const Context& context, const Batch& batch);
  /// The logits after the last token of each of several sequences, [next, vocabulary], given what the cache holds; adds
  /// the tokens to it. A sequence gets the logits that it would get alone, but for the rounding of larger products.
  Tensor next_logits(const Context& context, std::span<const NextTokens> next, DecoderCache& cache);
  /// Forgets what the cache holds of a sequence beyond its first `count` tokens; returns how many are left, fewer where
  /// a shorter sequence would have rotated its keys otherwise.
  int64_t keep_first(DecoderCache& cache, int64_t sequence, int64_t count) const;
  DecoderCache make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences = 1) const;
  void finish_step(const Context& context) override;
  std::vector<double> state() const override;
  bool restore(std::span<const double> state) override;

  const ModelConfig& config() const { return config_; }
  /// What the routers of the last loss() chose; null without experts.
  const std::shared_ptr<RouterLog>& router_log() const { return router_log_; }
  /// What they chose in every loss() since this was last called.
  RouterLoads take_router_loads() { return std::exchange(router_loads_, {}); }

 private:
  struct Block {
    Unit* unit = nullptr;
    Norm attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    SelfAttention attention;
    Mlp mlp;
    std::optional<Moe> experts;  // instead of mlp
    int64_t router = 0;          // its place in the log of routers
    bool local = false;          // rotates by the tables of layers with a window
  };
  Block make_block(int64_t index);
  Linear::Options linear_options(int64_t in, std::vector<int64_t> out, std::vector<std::string> names, bool bias,
                                 double std) const;
  SelfAttention::Options attention_options(const WeightNames::Layer& names, int64_t index) const;
  LatentProjection::Options latent_options(const WeightNames::Layer& names) const;
  Mlp::Options mlp_options(int64_t width, std::vector<std::string> up, std::string down, bool bias) const;
  Moe::Options expert_options(const WeightNames::Layer& names) const;
  double residual_std() const { return config_.initializer_range * config_.residual_initializer_scale; }
  PackedHeads heads() const;
  Norm::Options norm_options() const;
  /// The hidden states before the final norm, [tokens, hidden]. ids: [tokens] i32, those of the spans.
  Var hidden(Tape& tape, const Tensor& ids, std::vector<AttentionSpan> spans, const DecoderCache* cache);
  /// Where tokens sit in their sequences: rows of the learned positions, or of the tables of rope_.
  void set_positions(const Sequences& sequences) const;
  Tape::Section section_of(const Block& block, const Sequences& sequences, const KvCache* cache) const;
  /// All blocks; with full recompute, in checkpoints.
  Var run_blocks(Tape& tape, Var x, const Sequences& sequences, const DecoderCache* cache);
  /// The logits of hidden states, as the loss sees them too.
  Tensor head_logits(Tape& tape, const Var& hidden);

  ModelConfig config_;
  RecomputeOptions recompute_;
  SavedInputs saved_inputs_;
  std::shared_ptr<const Objective> objective_ = default_objective();
  std::shared_ptr<Fp8Recipe> fp8_;  // null: nothing is rounded
  Unit* embedding_;
  ParameterView tokens_, positions_, head_weight_;
  std::vector<Block> blocks_;
  Unit* head_;
  Norm final_norm_;
  std::optional<RopeTables> rope_, local_rope_;  // for sequences of up to so many tokens
  int64_t num_routers_ = 0;
  std::shared_ptr<RouterLog> router_log_;
  RouterLoads router_loads_;
};

}  // namespace nought
