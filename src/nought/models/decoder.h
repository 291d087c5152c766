// Decoder: the one decoder-only transformer, built from a ModelConfig; families differ in options, not in code.
//
// Its Units are the embedding, each block, and the head (final norm and output projection, which a tied model borrows
// from the embedding).
#pragma once

#include <optional>

#include "nought/models/config.h"
#include "nought/models/names.h"
#include "nought/nn/model.h"

namespace nought {

/// The keys and values of every layer for one sequence of at most `capacity` tokens.
struct DecoderCache {
  std::vector<KvCache> layers;
  std::vector<int32_t> ids;  // the tokens held
  int64_t length() const { return layers.empty() ? 0 : layers.front().length; }
};

class Decoder final : public Model {
 public:
  /// recompute: of blocks in the backward pass.
  explicit Decoder(const ModelConfig& config, const RecomputeOptions& recompute = {});

  Var loss(Tape& tape, const Tensor& ids, const Tensor& targets, double gradient_scale) override;
  /// The logits of every token, [batch * length, vocabulary]. ids: [batch, length] i32.
  Tensor logits(const Context& context, const Tensor& ids);
  /// The logits after the last of `ids` ([1, count] i32), [1, vocabulary], given what the cache holds; adds ids to it.
  Tensor next_logits(const Context& context, const Tensor& ids, DecoderCache& cache);
  DecoderCache make_cache(const Context& context, int64_t capacity, DType dtype) const;

  const ModelConfig& config() const { return config_; }
  /// What the routers of the last loss() chose; null without experts.
  const std::shared_ptr<RouterLog>& router_log() const { return router_log_; }

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
  /// Tables of one RopeOptions for sequences of up to so many tokens.
  struct Positions {
    std::optional<RopeTables> tables;
    bool beyond_switch = false;
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
  /// The hidden states before the final norm, [batch * length, hidden].
  Var hidden(Tape& tape, const Tensor& ids, DecoderCache* cache);
  Tape::Section section_of(const Block& block, const Sequences& sequences, KvCache* cache) const;
  /// All blocks; with full recompute, in checkpoints.
  Var run_blocks(Tape& tape, Var x, const Sequences& sequences, DecoderCache* cache);
  /// The logits of hidden states, as the loss sees them too.
  Tensor head_logits(Tape& tape, const Var& hidden);
  void prepare_positions(Positions& positions, const RopeOptions& options, const Context& context, int64_t length,
                         DType dtype) const;

  ModelConfig config_;
  RecomputeOptions recompute_;
  SavedInputs saved_inputs_;
  Unit* embedding_;
  ParameterView tokens_, positions_, head_weight_;
  std::vector<Block> blocks_;
  Unit* head_;
  Norm final_norm_;
  Positions rope_, local_rope_;
  int64_t num_routers_ = 0;
  std::shared_ptr<RouterLog> router_log_;
};

}  // namespace nought
