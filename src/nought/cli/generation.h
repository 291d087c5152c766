// What `nought generate` and `nought chat` share: a loaded model with its tokenizer, and the options of sampling.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/chat/chat_template.h"
#include "nought/cli/activations.h"
#include "nought/cli/launch.h"
#include "nought/infer/generate.h"
#include "nought/infer/generation_config.h"
#include "nought/infer/generation_mesh.h"
#include "nought/text/tokenizer.h"
#include "nought/weights/adapter_choices.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// --adapter and --base: what a model is read with.
struct AdapterFlags {
  std::vector<std::string> adapters;  // see parse_adapter_use()
  std::string base;                   // the model of a MODEL_DIR that holds an adapter; "": the one that it names
  std::vector<std::string> choices;   // in place of `adapters`, where requests choose one: see parse_named_adapter()

  std::vector<NamedAdapter> named() const;
};
void add_adapter_options(CLI::App& command, AdapterFlags& flags);
/// As add_adapter_options(), where requests choose an adapter by its name.
void add_adapter_choices(CLI::App& command, AdapterFlags& flags);
/// find_model() with these flags. IoError for what is no adapter, ConfigError for one of another model.
FoundModel find_model(const std::filesystem::path& path, const AdapterFlags& flags);
/// Collective.
FoundModel find_model(const std::filesystem::path& path, const AdapterFlags& flags, Communicator& ranks,
                      const Context& context);

/// --kv-dtype; see kv_dtype_named().
void add_kv_dtype_option(CLI::App& command, std::optional<DType>& kv_dtype);

/// --speculative and --speculative-tokens.
struct SpeculationFlags {
  std::string drafter;  // "lookup", or where a model is that guesses; "": none
  int64_t tokens = 8;

  /// ConfigError names the option that has no such value.
  void check() const;
};
void add_speculation_options(CLI::App& command, SpeculationFlags& flags);

struct GenerationOptions {
  std::string model_dir, tokenizer;
  AdapterFlags adapters;
  SpeculationFlags speculation;
  Activations activations = Activations::automatic;
  std::vector<std::string> stops;  // texts that end a reply
  GenerateOptions generate;
  std::vector<const CLI::Option*> sampling_flags = {};  // --temperature and so on

  /// Whether the command line has one of them.
  bool gives(const std::string& flag) const;
};

/// Takes the model's own settings of sampling for what the command line does not give. Returns the line that says which
/// count: "temperature 0.6, top-p 0.9 by generation_config.json; --top-k 5 in place of 20"; "" if the model has none.
std::string take_generation_config(const GenerationConfig& config, GenerationOptions& options);

/// Adds MODEL_DIR, --tokenizer and the options of sampling.
void add_generation_options(CLI::App& command, GenerationOptions& options);

/// Adds --tp, --pp and --ep.
void add_mesh_options(CLI::App& command, GenerationSizes& sizes);

/// What shows without the model's weights: whether there is such a model, and whether so many ranks can share it.
void check_mesh(const GenerationOptions& options, const LaunchOptions& launch, const GenerationSizes& sizes);

/// Says on stderr which folder was chosen, if there was a choice: "[model: out/checkpoint-150, newer than ...]".
void say_choice(const std::string& choice);

/// take_generation_config() of the folder of a loaded model. Rank 0 says the line on stderr.
void use_generation_config(const std::filesystem::path& folder, GenerationOptions& options, bool says);

/// A model in the dtype of its stored weights, on one rank or cut over several.
class LoadedModel {
 public:
  /// sizes: see generation_mesh(). All ranks make it together.
  LoadedModel(const GenerationOptions& options, Communicator& world, const Context& context,
              const GenerationSizes& sizes = {});

  Decoder& decoder() { return decoder_; }
  const ModelConfig& config() const { return decoder_.config(); }
  DType dtype() const { return dtype_; }
  /// What it is computed with.
  const Context& context() const { return context_; }
  /// The adapters that requests choose from, in the order of the model's choices.
  const std::vector<NamedAdapter>& adapters() const { return adapters_; }
  /// The folder that holds the model. It may be a checkpoint within MODEL_DIR.
  const std::filesystem::path& folder() const { return source_.folder(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// ConfigError if the model comes without one, and its tokens are not bytes.
  void require_tokenizer() const;
  /// The tokens that end a reply by config.json; of_text: also the one that ends a document of text.
  std::vector<int32_t> stop_ids(bool of_text) const;
  /// chat_source_for() this model. Bytes have no markers by which to choose: they spell those of chatml, unless the
  /// folder has a template.
  ChatSource chat_source(const std::string& wanted) const;

 private:
  ModelSource source_;
  std::vector<NamedAdapter> adapters_;
  AdapterChoices choices_;
  DType dtype_;
  Context context_;
  Mesh mesh_;
  Decoder decoder_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool has_tokenizer_ = false;  // false: the tokenizer is bytes, as nobody names one
};

}  // namespace nought
