// EmbeddingConfig: how a folder makes one vector of a text, by the files of sentence-transformers: modules.json and
// what it names, sentence_bert_config.json, tokenizer_config.json and config_sentence_transformers.json.
//
// Design goals: folders as versions 1 to 6 write them. A module that is not computed is refused by its name.
// Non-goals: modules of other inputs than texts, sparse vectors, several vectors of a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nought/infer/state_pool.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// sentence-transformers' names: "mean_sqrt_len_tokens". Nothing for another text.
std::optional<PoolingMode> pooling_named(const std::string& name);
/// "cls, max, ...".
std::string pooling_names();

enum class DenseActivation : uint8_t { identity, tanh, relu, gelu, sigmoid, silu };

/// A linear layer that vectors go through.
struct DenseModule {
  Tensor weight, bias;  // [out, in] and [out], f32; bias may be undefined
  DenseActivation activation = DenseActivation::tanh;
};

/// A step behind the pooling: one of the two.
struct EmbeddingStep {
  std::optional<DenseModule> dense = {};  // not given: vectors get the length 1
};

struct EmbeddingConfig {
  std::filesystem::path model;            // the folder of the model, which may be a part of the one that was read
  bool found = false;                     // whether there is a modules.json
  std::vector<PoolingMode> pooling = {};  // several: one vector behind the other; none: nobody says it
  bool include_prompt = true;             // whether the tokens of a prompt are pooled
  std::vector<EmbeddingStep> steps = {};
  std::optional<int64_t> max_tokens = {};  // that a text has at most, special ones included
  bool lowercase = false;
  bool cuts_left = false;  // the last tokens of a longer text stay, and not the first ones
  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  // the name of the one that texts get unless another is asked for; "": none

  /// The prompt of that name; ConfigError, which lists them, if there is none.
  const std::string& prompt(const std::string& name) const;
  /// Reads a folder. One without modules.json has no pooling and no steps. memory: of the dense layers' weights.
  /// IoError and ConfigError name the file.
  static EmbeddingConfig from_folder(const std::filesystem::path& folder, Memory& memory);
};

}  // namespace nought
