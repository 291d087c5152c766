// What `nought generate` and `nought chat` share: a loaded model with its tokenizer, and the options of sampling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/data/tokenizer.h"
#include "nought/infer/generate.h"
#include "nought/infer/generation_mesh.h"
#include "nought/train/model_source.h"
#include "nought/zero/sharded_model.h"

namespace nought {

struct GenerationOptions {
  std::string model_dir, tokenizer;
  std::vector<std::string> stops;  // texts that end a reply
  GenerateOptions generate;
};

/// Adds MODEL_DIR, --tokenizer and the options of sampling.
void add_generation_options(CLI::App& command, GenerationOptions& options);

/// Says on stderr which folder was chosen, if there was a choice: "[model: out/checkpoint-150, newer than ...]".
void say_choice(const std::string& choice);

/// A model in the dtype of its stored weights, on one rank or cut over several.
class LoadedModel {
 public:
  /// sizes: see generation_mesh(). All ranks make it together.
  LoadedModel(const GenerationOptions& options, Communicator& world, const Context& context,
              const GenerationSizes& sizes = {});

  Decoder& decoder() { return decoder_; }
  DType dtype() const { return source_.dtype(); }
  /// The folder that holds the model. It may be a checkpoint within MODEL_DIR.
  const std::filesystem::path& folder() const { return source_.folder(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The tokens that end a reply by config.json; of_text: also the one that ends a document of text.
  std::vector<int32_t> stop_ids(bool of_text) const;

 private:
  ModelSource source_;
  Mesh mesh_;
  Decoder decoder_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace nought
