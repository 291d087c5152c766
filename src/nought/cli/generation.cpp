#include "nought/cli/generation.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "nought/weights/kept_codes.h"

namespace nought {

void add_generation_options(CLI::App& command, GenerationOptions& options) {
  GenerateOptions& generate = options.generate;
  SamplingParameters& sampling = generate.sampling;
  command
      .add_option("MODEL_DIR", options.model_dir,
                  "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command.add_option("--tokenizer", options.tokenizer,
                     "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes");
  add_adapter_options(command, options.adapters);
  command.add_option("--max-new-tokens", generate.max_new_tokens, "Stop after this many new tokens")
      ->capture_default_str();
  command.add_option("--stop", options.stops, "Stop before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  options.sampling_flags = {
      command
          .add_option("--temperature", sampling.temperature,
                      "Divide the logits by this; 0: always take the likeliest token. These five: default: what the "
                      "model's generation_config.json says")
          ->capture_default_str(),
      command.add_option("--top-k", sampling.top_k, "Sample from the k likeliest tokens; 0: all")
          ->capture_default_str(),
      command
          .add_option("--top-p", sampling.top_p, "Sample from the fewest likeliest tokens whose probabilities sum to p")
          ->capture_default_str(),
      command.add_option("--min-p", sampling.min_p, "Sample from tokens at least p times as likely as the likeliest")
          ->capture_default_str(),
      command
          .add_option("--repetition-penalty", sampling.repetition_penalty,
                      "Make tokens that occurred already less likely by this factor; 1: off")
          ->capture_default_str()};
  command.add_option("--seed", sampling.seed, "The same seed gives the same text")->capture_default_str();
  add_kv_dtype_option(command, generate.kv_dtype);
  add_activations_option(command, options.activations);
  add_speculation_options(command, options.speculation);
}

void add_kv_dtype_option(CLI::App& command, std::optional<DType>& kv_dtype) {
  command
      .add_option_function<std::string>(
          "--kv-dtype", [&kv_dtype](const std::string& name) { kv_dtype = kv_dtype_named(name); },
          "What keys and values are kept in: bf16, f16, f32, or in 8 bits fp8 or int8; default: the model's dtype")
      ->type_name("DTYPE");
}

void SpeculationFlags::check() const {
  constexpr int64_t kMost = 64;
  require<ConfigError>(drafter.empty() || drafter == "lookup" || std::filesystem::exists(drafter),
                       "--speculative {}: expected lookup, or the folder of a model", drafter);
  require<ConfigError>(1 <= tokens && tokens <= kMost, "--speculative-tokens must be 1 to {}, got {}", kMost, tokens);
}

void add_speculation_options(CLI::App& command, SpeculationFlags& flags) {
  command
      .add_option(
          "--speculative", flags.drafter,
          "lookup: guess that text goes on as it did where it stood before, and compute what is guessed at once; "
          "faster where an answer quotes its prompt, and the same tokens. MODEL_DIR: a smaller model of the same "
          "vocabulary guesses")
      ->type_name("lookup|MODEL_DIR");
  command.add_option("--speculative-tokens", flags.tokens, "The most tokens that are guessed at once")
      ->capture_default_str();
}

namespace {

void add_base_option(CLI::App& command, AdapterFlags& flags) {
  command
      .add_option(
          "--base", flags.base,
          "Where the first folder holds an adapter: the model to read it with, in place of the one that it names")
      ->type_name("MODEL_DIR");
}

}  // namespace

void add_adapter_options(CLI::App& command, AdapterFlags& flags) {
  command
      .add_option("--adapter", flags.adapters,
                  "An adapter (LoRA) to read the model with, and a factor on what it adds; several add up")
      ->type_name("FOLDER[=SCALE]")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  add_base_option(command, flags);
}

void add_adapter_choices(CLI::App& command, AdapterFlags& flags) {
  command
      .add_option("--adapter", flags.choices,
                  "An adapter (LoRA) beside the model: requests whose model is NAME are answered with it, the others "
                  "without; may be given several times")
      ->type_name("NAME=FOLDER[=SCALE]")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  add_base_option(command, flags);
}

std::vector<NamedAdapter> AdapterFlags::named() const {
  std::vector<NamedAdapter> all;
  for (const std::string& text : choices) all.push_back(parse_named_adapter(text));
  return all;
}

namespace {

FoundModel with_adapters(FoundModel found, const AdapterFlags& flags) {
  for (const std::string& text : flags.adapters) {
    found.adapters.push_back(parse_adapter_use(text));
    const std::filesystem::path& folder = found.adapters.back().folder;
    require<IoError>(holds_adapter(folder), "--adapter {}: expected an adapter's folder, with {}", text,
                     kAdapterConfigFile);
    require_base(folder, found.folder);
  }
  return found;
}

}  // namespace

FoundModel find_model(const std::filesystem::path& path, const AdapterFlags& flags) {
  return with_adapters(find_model(path, std::filesystem::path(flags.base)), flags);
}

FoundModel find_model(const std::filesystem::path& path, const AdapterFlags& flags, Communicator& ranks,
                      const Context& context) {
  return with_adapters(find_model(path, ranks, context, flags.base), flags);
}

bool GenerationOptions::gives(const std::string& flag) const {
  return std::any_of(sampling_flags.begin(), sampling_flags.end(),
                     [&](const CLI::Option* each) { return each->check_name("--" + flag) && each->count() > 0; });
}

std::string take_generation_config(const GenerationConfig& config, GenerationOptions& options) {
  std::vector<std::string> taken, replaced;
  const auto take = [&](const char* flag, const auto& setting, auto& value) {
    if (!setting) return;
    if (options.gives(flag)) {
      if (*setting != value) replaced.push_back(fmt::format("--{} {} in place of {}", flag, value, *setting));
      return;
    }
    value = *setting;
    taken.push_back(fmt::format("{} {}", flag, value));
  };
  SamplingParameters& sampling = options.generate.sampling;
  take("temperature", config.temperature, sampling.temperature);
  take("top-k", config.top_k, sampling.top_k);
  take("top-p", config.top_p, sampling.top_p);
  take("min-p", config.min_p, sampling.min_p);
  take("repetition-penalty", config.repetition_penalty, sampling.repetition_penalty);
  std::string line;
  if (!taken.empty()) line = fmt::format("{} by generation_config.json", fmt::join(taken, ", "));
  if (!replaced.empty()) line += fmt::format("{}{}", line.empty() ? "" : "; ", fmt::join(replaced, ", "));
  return line;
}

void use_generation_config(const std::filesystem::path& folder, GenerationOptions& options, bool says) {
  const std::string line = take_generation_config(read_generation_config(folder), options);
  if (says && !line.empty()) fmt::print(stderr, "[sampling: {}]\n", line);
}

void add_mesh_options(CLI::App& command, GenerationSizes& sizes) {
  command.add_option("--tp", sizes.tensor, "How many ranks share each matrix; default: what --pp and --ep leave")
      ->type_name("T");
  command
      .add_option("--pp", sizes.pipeline,
                  "How many ranks hold different layers; default: 1, or with --tp what it leaves")
      ->type_name("P");
  command.add_option("--ep", sizes.experts, "How many ranks hold different experts")
      ->type_name("E")
      ->capture_default_str();
}

void check_mesh(const GenerationOptions& options, const LaunchOptions& launch, const GenerationSizes& sizes) {
  const ModelSource source(find_model(options.model_dir, options.adapters));
  source.config().require_language_model(options.model_dir);
  AdapterChoices(source, options.adapters.named());
  // Without --ranks, mpirun makes as many ranks as the hosts have slots.
  if (launch.ranks || launch.hostfile.empty())
    generation_mesh(source.config(), static_cast<int>(launch.ranks.value_or(1)), sizes);
}

void say_choice(const std::string& choice) {
  if (!choice.empty()) fmt::print(stderr, "[model: {}]\n", choice);
}

LoadedModel::LoadedModel(const GenerationOptions& options, Communicator& world, const Context& context,
                         const GenerationSizes& sizes)
    : source_(find_model(options.model_dir, options.adapters, world, context)),
      adapters_(options.adapters.named()),
      choices_(source_, adapters_),
      dtype_(computed_dtype(options.activations).value_or(source_.dtype())),
      context_(context),
      mesh_(world, generation_mesh(source_.config(), world.size(), sizes)),
      decoder_(choices_.config(), {}, {}, ModelRanks(mesh_)) {
  source_.config().require_language_model(options.model_dir);
  if (world.rank() == 0) say_choice(source_.choice());
  const bool on_host = context.memory->device().is_host();
  const std::vector<KeptFormat> kept = keep_stored_codes(source_, decoder_, /*reads_blocks=*/on_host);
  context_ = context_for(options.activations, kept, context);
  if (world.rank() == 0 && !kept.empty())
    fmt::print(stderr, "[weights: kept as {}{}]\n", describe(kept),
               rounds_inputs(context_) ? "; activations: int8 where they meet codes of GGUF or Q8_0" : "");
  model_ = std::make_unique<ShardedModel>(context, mesh_, decoder_,
                                          ShardedModel::Options{.dtype = dtype(), .training = false});
  model_->load(choices_);
  const std::string tokenizer = options.tokenizer.empty() ? source_.tokenizer() : options.tokenizer;
  tokenizer_ = make_tokenizer(tokenizer);
  has_tokenizer_ = !options.tokenizer.empty() || tokenizer != "bytes";
}

void LoadedModel::require_tokenizer() const {
  const int64_t size = decoder_.config().vocab_size;
  require<ConfigError>(
      has_tokenizer_ || size == tokenizer_->vocab_size(),
      "{} has no tokenizer.json, nor another file of a tokenizer, and its {} tokens are not bytes: "
      "--tokenizer names a folder or file of one, or bytes if it was trained on bytes; --ids takes and prints tokens",
      folder().string(), size);
}

std::vector<int32_t> LoadedModel::stop_ids(bool of_text) const {
  std::vector<int32_t> ids;
  if (of_text) ids.push_back(tokenizer_->separator());
  for (const int64_t id : decoder_.config().eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

ChatSource LoadedModel::chat_source(const std::string& wanted) const {
  const bool bytes = tokenizer_->name() == "bytes";
  try {
    return chat_source_for(wanted, folder(), *tokenizer_);
  } catch (const ConfigError&) {
    if (!bytes || !wanted.empty()) throw;
    return nought::chat_source(ChatFormat::chatml, *tokenizer_);
  }
}

}  // namespace nought
