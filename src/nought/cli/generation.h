// What the commands that generate share: a loaded model with its tokenizer, and the options of sampling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/data/tokenizer.h"
#include "nought/infer/generate.h"
#include "nought/train/model_source.h"
#include "nought/zero/sharded_model.h"

namespace nought {

struct GenerationOptions {
  std::string model_dir, tokenizer;
  std::vector<std::string> stops;  // texts that end a reply
  GenerateOptions generate;
};

/// Adds MODEL_DIR, --tokenizer and everything about how tokens are drawn.
void add_generation_options(CLI::App& command, GenerationOptions& options);

/// A model on one rank, in the dtype in which it is stored.
class LoadedModel {
 public:
  LoadedModel(const GenerationOptions& options, Communicator& self, const Context& context);

  Decoder& decoder() { return decoder_; }
  DType dtype() const { return source_.dtype(); }
  /// That holds the model, which may be a folder in the one that was named.
  const std::filesystem::path& folder() const { return source_.folder(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The token that ends a document of text, or those that config.json says end a reply.
  std::vector<int32_t> stop_ids(bool of_text) const;

 private:
  ModelSource source_;
  Decoder decoder_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace nought
