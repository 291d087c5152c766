// ModelConfig: the options of a decoder or an encoder, read from a Hugging Face config.json and written back as one.
//
// Design goals: one struct has the options of all families, so that the decoder never asks which family it is. Defaults
// are those of transformers. An option that would change the result and is not supported is refused by its name. The
// struct has more than 45 members, each an option of a family.
// Non-goals: weights and their names (names.h), encoders with decoders behind them, how weights are quantised
// (quantization_config.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/nn/adapter.h"
#include "nought/nn/layers.h"
#include "nought/nn/score_loss.h"

namespace nought {

/// How the model knows positions.
enum class PositionKind : uint8_t {
  rope,    // rotary positions: queries and keys are rotated
  learned  // an embedding of positions is added to that of the tokens
};
enum class MlpKind : uint8_t {
  gated,  // down(activation(gate(x)) * up(x))
  plain   // down(activation(up(x)))
};
/// What the norms of a branch (attention or MLP) normalise.
enum class NormPlacement : uint8_t {
  pre,           // its input
  pre_and_post,  // its input and its output
  post,          // its output
  sum            // its output, added to the residual stream
};
/// How a layer mixes the tokens of a sequence.
enum class LayerKind : uint8_t {
  attention,
  short_conv,  // a causal convolution of each channel over a few tokens
  delta        // the gated delta rule: a matrix for each head
};
/// How a checkpoint stores the weights of q, k and v.
enum class QkvPacking : uint8_t {
  separate,    // three tensors
  fused,       // one tensor, [q | k | v] along its outputs
  interleaved  // one tensor, [q k v] for each head in turn
};

/// Multi-head latent attention: queries, keys and values come from narrow latent vectors (arXiv 2405.04434).
struct LatentConfig {
  int64_t q_rank = 0;      // size of the queries' latent vector; 0: queries have none
  int64_t kv_rank = 0;     // size of the latent vector of keys and values
  int64_t own_dim = 0;     // size of the own part of each head of q and k
  int64_t shared_dim = 0;  // size of the rotated part of q and k; all heads share that of k
  int64_t value_dim = 0;   // size of a head of v
  bool down_bias = false;

  bool operator==(const LatentConfig&) const = default;
};

/// Mixtures of experts, which some or all layers have in place of an MLP.
struct ExpertsConfig {
  int64_t num_experts = 0;
  int64_t intermediate_size = 0;  // the width of one expert
  RouterRule rule;
  bool router_bias = false;
  bool choice_bias = false;      // values are added to choose experts; they are not trained
  bool choice_bias_row = false;  // a checkpoint has them as one row, [1, E]
  ExpertStorage storage = ExpertStorage::separate;
  ExpertActivation activation;
  bool scales_input = false;             // weights scale what experts read, and not what they give
  int64_t shared_intermediate_size = 0;  // the width of the shared expert, an MLP that all tokens pass; 0: none
  bool shared_gate = false;              // whether a gate scales the shared expert's result
  bool auxiliary_loss = false;           // the loss includes auxiliary_coefficient * (how unbalanced the experts are)
  double auxiliary_coefficient = 0;
  /// With drop_tokens an expert takes at most ceil(capacity_factor * its even share) tokens of a batch.
  double capacity_factor = 0;
  bool drop_tokens = false;
  bool quantized_dispatch = false;  // rows travel to the experts of other ranks as 8-bit codes
  /// The loss that balances experts counts what a micro-batch chose on one rank, and not on all.
  bool balances_by_rank = false;
  std::vector<bool> layers;  // true for each layer with experts; the others have an MLP

  bool operator==(const ExpertsConfig&) const = default;
};

/// An intermediate_size that a checkpoint's config derives: a third less than it says, times a factor, up to a
/// multiple.
struct DerivedWidth {
  int64_t written = 0;
  double factor = 1;
  int64_t multiple = 1;

  bool operator==(const DerivedWidth&) const = default;
};

/// The layers of the kind short_conv.
struct ShortConvConfig {
  int64_t taps = 0;  // tokens that a token sees, itself included
  bool bias = false;

  bool operator==(const ShortConvConfig&) const = default;
};

/// The layers of the kind delta.
struct DeltaConfig {
  DeltaShape shape;
  int64_t taps = 0;      // how long the convolution of q, k and v is
  bool grouped = false;  // whether a checkpoint stores the parts of a key head together

  bool operator==(const DeltaConfig&) const = default;
};

/// The config.json of the folder if the model is the text part of a multimodal one, or if layers that predict later
/// tokens lie beside it (text_part.h); else "". Models are the same whatever lies beside them: so are these.
struct WholeConfig {
  std::string json;

  bool operator==(const WholeConfig&) const { return true; }
};

/// A layer between the state of a sequence and its scores: norm(activation(dense(x))).
struct ScoreLayer {
  std::optional<Activation> activation = {};  // not given: tanh
  bool bias = true;
  bool norm = false;

  bool operator==(const ScoreLayer&) const = default;
};

/// A head that scores whole sequences, in place of the one that predicts tokens: transformers'
/// XForSequenceClassification. That of a decoder reads the state of the last token that is no padding, and has no bias.
struct ClassifierConfig {
  int64_t labels = 0;
  std::optional<ProblemType> problem = {};   // as config.json says it
  std::optional<int64_t> pad_token_id = {};  // the id that is no text; not given: all are
  std::string names = {};                    // config.json's id2label; "": it has none
  bool tied = false;                         // what config.json says of a head that is not there; for exports
  ScorePooling pooling = ScorePooling::last_token;
  std::optional<ScoreLayer> layer = {};
  bool bias = false;  // of the scores

  bool operator==(const ClassifierConfig&) const = default;
  /// What the scores mean: one is a number, several are classes, unless it is said.
  ProblemType problem_type() const {
    return problem.value_or(labels == 1 ? ProblemType::regression : ProblemType::single_label_classification);
  }
};

struct ModelConfig {
  std::string family;  // Hugging Face's model_type
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // num_heads * head_dim need not be hidden_size
  int64_t max_positions = 0;
  /// The width of the rows that tokens look up and of those that make logits, where products lead from the one to
  /// hidden_size and back to the other; 0: there are none.
  int64_t projected_size = 0;

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  double norm_weight_offset = 0;
  bool norm_bias = true;   // layer norms have a bias
  bool final_norm = true;  // whether the hidden states are normalised once more before the head
  bool first_norm = true;  // whether the first block normalises what its attention reads
  NormPlacement norm_placement = NormPlacement::pre;
  /// Attention and MLP both read the block's input, each through its own norm.
  bool parallel_residual = false;
  bool shared_norm = false;   // with parallel_residual: one norm serves both
  double residual_scale = 1;  // factor on what a branch adds

  PositionKind positions = PositionKind::rope;
  int64_t position_offset = 0;            // the row of the first of the learned positions
  int64_t token_types = 0;                // rows of an embedding of which each token adds the first; 0: there is none
  bool embedding_norm = false;            // whether the sum of the embeddings is normalised
  RopeOptions rope;                       // its rotary_dim is 0 without rotary positions
  std::optional<RopeOptions> local_rope;  // for layers with a sliding window, if they rotate differently
  std::vector<bool> unrotated;            // true for each layer that knows no positions; empty: there is none
  MlpKind mlp = MlpKind::gated;
  Activation activation = Activation::silu;
  bool causal = true;  // false: a token sees later ones, too, and a window reaches to both sides of it
  double attention_scale = 1;
  bool scale_by_layer = false;            // it is divided by the number of the layer, from 1
  bool upcast_scores = false;             // gpt2's reorder_and_upcast_attn: scores are fp32 here always; for exports
  double attention_softcap = 0;           // 0: none
  std::optional<QueryScale> query_scale;  // what queries are multiplied by
  std::vector<int64_t> sliding_windows;   // for each layer, how many tokens a token sees to a side; 0: all
  bool chunked = false;                   // windows are chunks: a token sees those of its chunk alone
  QkNorm qk_norm = QkNorm::none;          // if unweighted, of rotated layers alone
  double qkv_clip = 0;                    // queries, keys and values stay within [-clip, clip]; 0: they are not clipped
  bool attention_sinks = false;
  std::optional<LatentConfig> latent;
  std::vector<LayerKind> layer_kinds;  // what each layer does with tokens; empty: all attend
  std::optional<ShortConvConfig> short_conv;
  std::optional<DeltaConfig> delta;
  bool output_gate = false;  // q's projection has a gate for each element that attention gives
  std::optional<ExpertsConfig> experts;
  double embedding_scale = 1;
  double logit_softcap = 0;  // 0: none
  double logit_divisor = 1;

  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool tie_word_embeddings = false;
  WeightLayout weight_layout = WeightLayout::out_in;
  QkvPacking qkv_packing = QkvPacking::separate;
  std::optional<DerivedWidth> derived_width;  // whence intermediate_size comes; for exports
  bool fused_gate_up = false;                 // whether a checkpoint stores gate and up as one tensor

  double initializer_range = 0.02;
  /// Factor on initializer_range for weights whose result is added to the residual stream.
  double residual_initializer_scale = 1;

  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  /// How the folder's weights are quantised, "" if they are not: the quant_method of its quantization_config.
  std::string quantization;
  WholeConfig whole = {};
  /// False: the model gives hidden states and has no head, as encoders do; tie_word_embeddings is false then.
  bool predicts_tokens = true;
  /// Whether the head scores sequences; tie_word_embeddings is false then.
  std::optional<ClassifierConfig> classifier = {};
  /// What an adapter adds; its base, all other parameters, is frozen. No part of a config.json.
  ModelAdapter adapter = {};
  /// One line for the user for each thing that the config asks for and that Nought does not do.
  std::vector<std::string> notes;

  /// The width of the rows of the vocabulary.
  int64_t token_width() const { return projected_size > 0 ? projected_size : hidden_size; }

  bool operator==(const ModelConfig&) const = default;

  /// Reads the content of a config.json. `source` names it in errors. ConfigError.
  static ModelConfig from_json(const Json& json, const std::string& source = "config.json");
  /// Reads DIR/config.json, or the metadata of a GGUF file. IoError, ConfigError.
  static ModelConfig from_folder(const std::filesystem::path& folder);
  /// ConfigError, which names `source`, if the weights are quantised by a method that is not read.
  void require_loadable(const std::string& source) const;
  /// The model without its head, which gives hidden states.
  ModelConfig without_head() const;
  /// ConfigError, which names `source`, unless the head predicts tokens.
  void require_language_model(const std::string& source) const;
  /// ConfigError, which names `source`, if there is no head.
  void require_head(const std::string& source) const;
  /// The model_types that from_json() supports: of decoders, and of encoders.
  static const std::vector<std::string>& families();
  static const std::vector<std::string>& encoders();

  /// A config.json that transformers loads, for weights of the given dtype.
  OrderedJson to_hf_json(DType dtype) const;
  /// The number of elements of all parameters. Tied weights count once.
  int64_t parameter_count() const;
  /// The sliding window of the layers that have one, which is the same for all of them; 0 if no layer has one.
  int64_t sliding_window() const;
  bool rotates(int64_t layer) const { return unrotated.empty() || !unrotated[static_cast<size_t>(layer)]; }
  LayerKind kind_of(int64_t layer) const {
    return layer_kinds.empty() ? LayerKind::attention : layer_kinds[static_cast<size_t>(layer)];
  }
  int64_t attention_layers() const {
    return layer_kinds.empty() ? num_layers : std::count(layer_kinds.begin(), layer_kinds.end(), LayerKind::attention);
  }
  /// Whether some layers keep a state along a sequence, which cannot be undone token by token.
  bool keeps_states() const { return attention_layers() < num_layers; }
  bool has_experts(int64_t layer) const { return experts && experts->layers[static_cast<size_t>(layer)]; }
  /// Whether the length of a row decides how its tokens rotate (rope type "dynamic").
  bool rotates_by_row() const {
    return rope.kind == RopeKind::dynamic || (local_rope && local_rope->kind == RopeKind::dynamic);
  }
  /// The most tokens of a sequence that is continued token by token.
  int64_t most_cached() const {
    const bool bounded = positions == PositionKind::learned || rotates_by_row();
    return bounded ? max_positions : std::numeric_limits<int64_t>::max();
  }
  /// The factor on the scores of a layer.
  double attention_scale_of(int64_t layer) const {
    return scale_by_layer ? attention_scale / static_cast<double>(layer + 1) : attention_scale;
  }
  /// True if a layer has an MLP that all tokens pass: a dense one, or a shared expert.
  bool has_mlp() const {
    return !experts || experts->shared_intermediate_size > 0 ||
           std::find(experts->layers.begin(), experts->layers.end(), false) != experts->layers.end();
  }
};

/// Hugging Face's name of a dtype that weights are saved in. ConfigError for another.
std::string torch_name(DType dtype);

}  // namespace nought
