#include "nought/models/adapter_vocabulary.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/models/adapter_modules.h"
#include "nought/models/names.h"

namespace nought {

namespace {

bool names(const std::string& end, const std::string& layer) { return layer == end || layer.ends_with("." + end); }

/// The layer of the vocabulary that a key of trainable_token_indices names.
std::string layer_named(const std::string& key, const WeightNames& of, const std::string& place) {
  if (key.empty() || names(key, of.token_embedding)) return of.token_embedding;
  require<ConfigError>(names(key, of.head), "{}: trainable_token_indices names {}, and tokens have rows in {} and {}",
                       place, one_line(key), of.token_embedding, of.head);
  return of.head;
}

void add_tokens(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place,
                ModelAdapter& chosen) {
  const WeightNames of = WeightNames::of(config);
  for (const auto& [key, tokens] : adapter.tokens) {
    const std::string layer = layer_named(key, of, place);
    const int32_t last = *std::ranges::max_element(tokens);
    require<ConfigError>(last < config.vocab_size,
                         "{}: trainable_token_indices has {}, and the model has {} tokens: 0 to {}", place, last,
                         config.vocab_size, config.vocab_size - 1);
    require<ConfigError>(!chosen.saves(layer + ".weight") && chosen.find(layer) == nullptr,
                         "{}: {} is among modules_to_save or target_modules, and in trainable_token_indices: leave it "
                         "out of one of them",
                         place, layer);
    require<ConfigError>(!config.head_bias || (layer != of.head && !config.tie_word_embeddings),
                         "{}: trainable_token_indices of {} of a {} model, which has a bias, is not supported yet: "
                         "remove it",
                         place, of.head, config.family);
    require<ConfigError>(chosen.tokens.emplace(layer, tokens).second,
                         "{}: trainable_token_indices has two lists for {}", place, layer);
  }
  const auto head = chosen.tokens.find(of.head), table = chosen.tokens.find(of.token_embedding);
  if (!config.tie_word_embeddings || head == chosen.tokens.end()) return;
  require<ConfigError>(table != chosen.tokens.end() && table->second == head->second,
                       "{}: trainable_token_indices of {}, which is {}: give both the same tokens, or {} alone", place,
                       of.head, of.token_embedding, of.token_embedding);
  chosen.tokens.erase(head);  // what replaces rows of the table replaces those of its head
}

/// Makes one weight of the table and the head of a tied model, if either is trained whole.
void keep_tie(const ModelConfig& config, const std::string& place, ModelAdapter& chosen) {
  const WeightNames of = WeightNames::of(config);
  require<ConfigError>(chosen.find(of.head) == nullptr && chosen.find(of.token_embedding) == nullptr,
                       "{}: ensure_weight_tying with {} among target_modules is not supported yet: remove one of the "
                       "two",
                       place, chosen.find(of.head) != nullptr ? of.head : of.token_embedding);
  const std::string table = of.token_embedding + ".weight", head = of.head + ".weight";
  if (!chosen.saves(table) && !chosen.saves(head)) return;
  std::erase_if(chosen.saved, [&](const std::string& each) { return each == table || each == head; });
  chosen.saved.push_back(table);
  chosen.tied_head = of.head;
}

}  // namespace

void add_vocabulary_choices(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place,
                            ModelAdapter& chosen) {
  add_tokens(adapter, config, place, chosen);
  if (adapter.ties && config.tie_word_embeddings) keep_tie(config, place, chosen);
}

ModelConfig with_adapter(ModelConfig config, ModelAdapter adapter) {
  const WeightNames names = WeightNames::of(config);
  const bool parts = adapter.saves(names.head + ".weight") || adapter.saves(names.token_embedding + ".weight");
  if (parts && adapter.tied_head.empty()) config.tie_word_embeddings = false;
  config.adapter = std::move(adapter);
  return config;
}

ModelConfig merged_config(ModelConfig config, const ModelAdapter& adapter) {
  const WeightNames names = WeightNames::of(config);
  if (adapter.find(names.head) != nullptr || adapter.find(names.token_embedding) != nullptr)
    config.tie_word_embeddings = false;
  config = with_adapter(std::move(config), adapter);
  config.adapter = {};
  return config;
}

}  // namespace nought
