// Encoders: bert, roberta and xlm-roberta, which normalise the sums of their branches, and modernbert, whose layers see
// windows to both sides. Defaults: those of transformers 4.57.
#include <cmath>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/models/config_common.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

/// What no encoder has: a causal mask, and a head.
void become_encoder(ConfigReader& reader, ModelConfig& config) {
  config.causal = config.predicts_tokens = config.tie_word_embeddings = false;
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  reader.only("is_decoder", false, "encoders see the tokens behind each one");
  reader.ignore({"tie_word_embeddings", "classifier_dropout"});
}

void read_encoder_sizes(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults) {
  config.vocab_size = reader.size("vocab_size", defaults.vocab_size, kMaxRows);
  config.hidden_size = reader.size("hidden_size", defaults.hidden_size, kMaxWidth);
  config.intermediate_size = reader.size("intermediate_size", defaults.intermediate_size, kMaxWidth);
  config.num_layers = reader.size("num_hidden_layers", defaults.num_layers, kMaxLayers);
  config.num_heads = config.num_kv_heads = reader.size("num_attention_heads", defaults.num_heads, kMaxWidth);
  config.head_dim = even_share(reader, config);
  config.max_positions = reader.size("max_position_embeddings", defaults.max_positions, kMaxRows);
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  config.norm = NormKind::layer;
  set_sliding_windows(config, 0);
}

/// The sizes and ids that only these families default to otherwise.
struct BertDefaults {
  int64_t vocab_size = 0, positions = 512;
  double norm_eps = 1e-12;
  bool counts_from_pad = false;  // positions count from the padding's id + 1 on
};

void read_bert_like(ConfigReader& reader, ModelConfig& config, const BertDefaults& defaults) {
  read_encoder_sizes(reader, config, {defaults.vocab_size, 768, 3072, 12, 12, 0, 0, defaults.positions});
  config.norm_eps = reader.non_negative("layer_norm_eps", defaults.norm_eps);
  config.norm_placement = NormPlacement::sum;
  config.final_norm = false;
  config.embedding_norm = true;
  config.positions = PositionKind::learned;
  config.token_types = reader.size("type_vocab_size", 2, kMaxRows);
  config.mlp = MlpKind::plain;
  config.activation = read_activation(reader, "hidden_act", "gelu");
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  become_encoder(reader, config);
  reader.only("position_embedding_type", "absolute", "positions are added to the embeddings");
  reader.ignore({"pad_token_id", "hidden_dropout_prob", "attention_probs_dropout_prob", "gradient_checkpointing",
                 "layer_norm_type", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
                 "pooler_size_per_head", "pooler_type", "directionality", "output_past"});
  if (!defaults.counts_from_pad) return;
  config.position_offset = reader.integer("pad_token_id").value_or(1) + 1;
  require<ConfigError>(
      config.position_offset > 0 && config.position_offset < config.max_positions,
      "{}: pad_token_id {} leaves none of max_position_embeddings {}, which are counted from behind it",
      reader.source(), config.position_offset - 1, config.max_positions);
  config.max_positions -= config.position_offset;
}

void write_bert_like(const ModelConfig& config, OrderedJson& json) {
  json.update({{"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"max_position_embeddings", config.max_positions + config.position_offset},
               {"type_vocab_size", config.token_types},
               {"hidden_act", activation_name(config.activation)},
               {"layer_norm_eps", config.norm_eps},
               {"position_embedding_type", "absolute"},
               {"pad_token_id", nullptr}});
  if (config.position_offset > 0) json["pad_token_id"] = config.position_offset - 1;
}

void read_bert(ConfigReader& reader, ModelConfig& config) { read_bert_like(reader, config, {.vocab_size = 30522}); }

void read_roberta(ConfigReader& reader, ModelConfig& config) {
  read_bert_like(reader, config, {.vocab_size = 50265, .counts_from_pad = true});
}

void read_xlm_roberta(ConfigReader& reader, ModelConfig& config) {
  read_bert_like(reader, config, {.vocab_size = 30522, .counts_from_pad = true});
}

/// Layers that attend to everything: every n-th from the first on.
bool is_local(int64_t layer, int64_t period) { return layer % period != 0; }

void read_modernbert(ConfigReader& reader, ModelConfig& config) {
  read_encoder_sizes(reader, config, {50368, 768, 1152, 22, 12, 0, 0, 8192});
  config.norm_eps = reader.non_negative("norm_eps", 1e-5);
  config.norm_bias = reader.boolean("norm_bias").value_or(false);
  config.embedding_norm = true;
  config.first_norm = false;
  config.activation = read_activation(reader, "hidden_activation", "gelu");
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  config.qkv_packing = QkvPacking::fused;
  config.fused_gate_up = true;
  become_encoder(reader, config);
  // A window of 128 reaches 64 tokens to each side.
  const int64_t window = reader.size("local_attention", 128, kMaxRows) / 2 + 1;
  read_layer_types(reader, config, window, is_local, reader.size("global_attn_every_n_layers", 3, kMaxLayers));
  const double theta = reader.number("global_rope_theta").value_or(160000);
  read_rope(reader, config, theta);
  if (!config.local_rope)
    config.local_rope =
        RopeOptions{.theta = reader.has("local_rope_theta") ? reader.number("local_rope_theta").value_or(theta) : 10000,
                    .rotary_dim = config.rope.rotary_dim};
  reader.ignore({"local_rope_theta", "pad_token_id", "attention_dropout", "embedding_dropout", "mlp_dropout",
                 "decoder_bias", "classifier_pooling", "classifier_bias", "classifier_activation",
                 "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "reference_compile",
                 "repad_logits_with_grad", "initializer_cutoff_factor", "layer_norm_eps", "position_embedding_type",
                 "gradient_checkpointing"});
}

void write_modernbert(const ModelConfig& config, OrderedJson& json) {
  json.update({{"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"max_position_embeddings", config.max_positions},
               {"hidden_activation", activation_name(config.activation)},
               {"norm_eps", config.norm_eps},
               {"norm_bias", config.norm_bias},
               {"attention_bias", config.qkv_bias},
               {"mlp_bias", config.mlp_bias},
               {"global_rope_theta", config.rope.theta},
               {"local_rope_theta", config.local_rope->theta},
               {"pad_token_id", nullptr}});
  write_layer_types(config, json);  // which 4.57 does not read: it has every n-th layer
  json.erase("sliding_window");
  if (config.sliding_window() > 0) json["local_attention"] = 2 * (config.sliding_window() - 1);
  int64_t period = 1;
  const auto fits = [&](int64_t each) {
    for (int64_t i = 0; i < config.num_layers; ++i)
      if (is_local(i, each) != (config.sliding_windows[static_cast<size_t>(i)] > 0)) return false;
    return true;
  };
  while (period < config.num_layers && !fits(period)) ++period;
  json["global_attn_every_n_layers"] = period;
}

constexpr const char* kModernBert = "modernbert";

constexpr Family kEncoderFamilies[] = {{"bert", "BertModel", read_bert, write_bert_like},
                                       {"modernbert", "ModernBertModel", read_modernbert, write_modernbert},
                                       {"roberta", "RobertaModel", read_roberta, write_bert_like},
                                       {"xlm-roberta", "XLMRobertaModel", read_xlm_roberta, write_bert_like}};

}  // namespace

std::span<const Family> encoder_families() { return kEncoderFamilies; }

ClassifierConfig encoder_classifier(const std::string& family) {
  ClassifierConfig classifier{.pooling = ScorePooling::first_token, .layer = ScoreLayer{}, .bias = true};
  if (family == kModernBert)
    classifier.layer = ScoreLayer{.activation = Activation::gelu_erf, .bias = false, .norm = true};
  return classifier;
}

void read_encoder_classifier(ConfigReader& reader, const std::string& family, ClassifierConfig& classifier) {
  const ClassifierConfig own = encoder_classifier(family);
  classifier.pooling = own.pooling, classifier.layer = own.layer, classifier.bias = own.bias;
  if (family != kModernBert) return;
  const std::string pooling = reader.text("classifier_pooling").value_or("cls");
  require<ConfigError>(
      pooling == "cls" || pooling == "mean",
      "{}: classifier_pooling \"{}\" is none of cls, mean: set it to the one that the head was trained "
      "with",
      reader.source(), one_line(pooling));
  if (pooling == "mean") classifier.pooling = ScorePooling::mean;
  classifier.layer->bias = reader.boolean("classifier_bias").value_or(false);
  classifier.layer->activation = read_activation(reader, "classifier_activation", "gelu");
}

void write_encoder_classifier(const ModelConfig& config, OrderedJson& json) {
  if (config.family != kModernBert || !config.classifier->layer) return;
  json["classifier_pooling"] = config.classifier->pooling == ScorePooling::mean ? "mean" : "cls";
  json["classifier_bias"] = config.classifier->layer->bias;
  json["classifier_activation"] = activation_name(*config.classifier->layer->activation);
}

}  // namespace nought
