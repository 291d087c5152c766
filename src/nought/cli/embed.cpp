// nought embed: a vector of each text, by an encoder or by a decoder.
#include <filesystem>
#include <memory>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/comm/flight_timeout.h"
#include "nought/infer/embedder.h"
#include "nought/io/hub_cache.h"
#include "nought/io/text_file.h"
#include "nought/weights/kept_codes.h"

namespace nought {

namespace {

struct EmbedOptions {
  std::string model_dir, input, output, tokenizer, pooling;
  std::string field = "text";
  std::optional<std::string> prompt, prompt_name;
  std::optional<int64_t> max_length;
  int64_t batch_size = 32;
  bool normalize = false, token_counts = false;
  AdapterFlags adapters;
  LaunchOptions launch;

  /// How the folder makes vectors, with what the command line says in its place.
  EmbeddingConfig config(Memory& memory) const {
    std::error_code ignored;
    const bool there = std::filesystem::exists(model_dir, ignored);
    const std::optional<std::filesystem::path> cached = there ? std::nullopt : hub_snapshot(model_dir);
    EmbeddingConfig config = EmbeddingConfig::from_folder(cached.value_or(model_dir), memory);
    if (!pooling.empty()) {
      const auto mode = pooling_named(pooling);
      require<ConfigError>(mode.has_value(), "--pooling {}: known are {}", pooling, pooling_names());
      config.pooling = {*mode};
    }
    if (normalize) config.steps.emplace_back();
    if (max_length) config.max_tokens = max_length;
    return config;
  }
  std::string prompt_of(const EmbeddingConfig& config) const {
    if (prompt) return *prompt;
    const std::string name = prompt_name.value_or(config.default_prompt);
    return name.empty() ? "" : config.prompt(name);
  }
};

/// The folder of the model: a part of MODEL_DIR, where modules.json says so.
std::string model_folder(const EmbedOptions& options, const EmbeddingConfig& config) {
  return config.found ? config.model.string() : options.model_dir;
}

std::vector<std::string> read_texts(const EmbedOptions& options) {
  const auto mapped = map_text(options.input);
  std::string_view text = mapped->text();
  std::vector<std::string> texts;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto found = json.is_object() ? json.find(options.field) : json.end();
    require<ConfigError>(json.is_object() && found != json.end() && found->is_string(),
                         "{}:{}: expected an object with a \"{}\" that is a string; --field names another key",
                         options.input, number, options.field);
    texts.push_back(found->get<std::string>());
  }
  require<ConfigError>(!texts.empty(), "--input {}: there is no line in it", options.input);
  return texts;
}

/// The model and what it reads texts with, on this rank alone.
class EmbeddingModel {
 public:
  EmbeddingModel(const EmbedOptions& options, EmbeddingConfig config, Communicator& world, const Context& context)
      : config_(std::move(config)),
        source_(find_model(model_folder(options, config_), options.adapters, world, context), AdaptersAre::beside,
                HeadIs::left_out),
        decoder_(source_.config()),
        tokenizer_(make_tokenizer(options.tokenizer.empty() ? source_.tokenizer() : options.tokenizer)) {
    if (world.rank() == 0) say_choice(source_.choice());
    tokenizer_->check_fits(decoder_.config().vocab_size);
    keep_stored_codes(source_, decoder_, /*reads_blocks=*/context.memory->device().is_host());
    model_ = std::make_unique<ShardedModel>(context, Mesh(), decoder_,
                                            ShardedModel::Options{.dtype = source_.dtype(), .training = false});
    model_->load(source_.weights());
    if (config_.pooling.empty())
      config_.pooling = {decoder_.config().causal ? PoolingMode::lasttoken : PoolingMode::mean};
    embedder_.emplace(config_, decoder_, *tokenizer_, context);
  }
  const EmbeddingConfig& config() const { return config_; }
  const Embedder& embedder() const { return *embedder_; }

 private:
  EmbeddingConfig config_;
  ModelSource source_;
  Decoder decoder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ShardedModel> model_;
  std::optional<Embedder> embedder_;
};

/// Adds up what each rank has of the vectors: of a text one has it, and the others zeros.
std::vector<float> of_all_ranks(std::vector<float> own, Communicator& world, const Context& context) {
  if (world.size() == 1) return own;
  const Tensor sums = context.upload<float>({std::ssize(own)}, own);
  world.wait(world.all_reduce(sums), *context.stream);
  return context.to_host<float>(sums);
}

void embed_rank(const EmbedOptions& options, Communicator& world, const Context& context) {
  const FlightFolder flight(world, own_flight_folder(world, context));
  const EmbeddingModel model(options, options.config(*context.memory), world, context);
  const Embedder& embedder = model.embedder();
  const std::string prompt = options.prompt_of(model.config());
  std::vector<EmbeddedText> texts, own;
  std::vector<size_t> places;
  for (const std::string& text : read_texts(options)) {
    texts.push_back(embedder.tokens(prompt, text));
    require<ConfigError>(!texts.back().ids.empty(), "{}:{}: the text is empty, and this tokenizer adds no tokens to it",
                         options.input, texts.size());
    if (static_cast<int>(texts.size() - 1) % world.size() != world.rank()) continue;
    places.push_back(texts.size() - 1);
    own.push_back(texts.back());
  }
  const auto width = static_cast<size_t>(embedder.dimensions());
  const std::vector<float> computed = embedder.embed(own, options.batch_size);
  std::vector<float> vectors(texts.size() * width);
  for (size_t i = 0; i < places.size(); ++i)
    std::copy_n(computed.data() + i * width, width, vectors.data() + places[i] * width);
  vectors = of_all_ranks(std::move(vectors), world, context);
  if (world.rank() != 0) return;
  save_embeddings(options.output, vectors, texts, options.token_counts);
  const auto cut = std::ranges::count_if(texts, [](const EmbeddedText& text) { return text.cut; });
  if (cut > 0)
    fmt::print(stderr, "note: {} of {} texts are longer than {} tokens and were cut\n", cut, texts.size(),
               embedder.max_tokens());
  fmt::print("{}: the vectors of {} text{}, {} elements each\n", options.output, texts.size(),
             texts.size() == 1 ? "" : "s", width);
}

void validate_embed(const EmbedOptions& options) {
  const std::filesystem::path folder = std::filesystem::absolute(options.output).parent_path();
  require<IoError>(std::filesystem::is_directory(folder), "--output {}: {} is not a folder", options.output,
                   folder.string());
  require<ConfigError>(options.batch_size > 0, "--batch-size {}: expected 1 or more", options.batch_size);
  require<ConfigError>(!options.max_length || *options.max_length > 0, "--max-length {}: expected 1 or more",
                       options.max_length.value_or(0));
  require<ConfigError>(!options.prompt || !options.prompt_name, "--prompt and --prompt-name: give one of them");
  const EmbeddingConfig config = options.config(*Memory::create());
  options.prompt_of(config);
  const ModelSource source(find_model(model_folder(options, config), options.adapters), AdaptersAre::beside,
                           HeadIs::left_out);
  require<ConfigError>(!options.tokenizer.empty() || source.tokenizer() != "bytes" || source.config().vocab_size == 256,
                       "{} has no tokenizer.json, nor another file of a tokenizer: --tokenizer names a folder or file "
                       "of one",
                       source.folder().string());
  const auto tokenizer = make_tokenizer(options.tokenizer.empty() ? source.tokenizer() : options.tokenizer);
  tokenizer->check_fits(source.config().vocab_size);
  Embedder::most_tokens(config, source.config(), *tokenizer);
  read_texts(options);
}

}  // namespace

void add_embed(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "embed", "Writes a vector of each text: embeddings, as safetensors",
      {"nought embed MODEL_DIR --input texts.jsonl --output vectors.safetensors",
       "nought embed MODEL_DIR --input questions.jsonl --output q.safetensors \\", "    --prompt-name query --ranks 2",
       "nought embed MODEL_DIR --input texts.jsonl --output vectors.safetensors \\",
       "    --pooling mean --normalize --max-length 256"});
  const auto options = std::make_shared<EmbedOptions>();
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A folder of an encoder or a decoder, with or without the files of sentence-transformers")
      ->required();
  command->add_option("--input", options->input, "JSON lines, each an object with a text")
      ->type_name("FILE")
      ->required();
  command->add_option("--output", options->output, "safetensors to write: embeddings [texts, elements] in f32")
      ->type_name("FILE")
      ->required();
  command->add_option("--field", options->field, "The key of the text")->type_name("KEY")->capture_default_str();
  command
      ->add_option("--pooling", options->pooling,
                   fmt::format("How hidden states become a vector: {}; default: as modules.json says, else mean for an "
                               "encoder and lasttoken for a decoder",
                               pooling_names()))
      ->type_name("MODE");
  command->add_flag("--normalize", options->normalize, "Give each vector the length 1, where no module does");
  command
      ->add_option("--prompt-name", options->prompt_name,
                   "A prompt of config_sentence_transformers.json to put before each text; default: the one it names")
      ->type_name("NAME");
  command->add_option("--prompt", options->prompt, "A prompt to put before each text")->type_name("TEXT");
  command
      ->add_option("--max-length", options->max_length,
                   "Tokens of a text, special ones included; longer texts are cut; default: as the folder says")
      ->type_name("N");
  command->add_option("--batch-size", options->batch_size, "Texts per rank and forward pass")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--token-counts", options->token_counts, "Write token_counts [texts], too");
  command->add_option("--tokenizer", options->tokenizer, "A folder or file of a tokenizer; default: the model's own")
      ->type_name("NAME");
  add_adapter_options(*command, options->adapters);
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return launch(
          invocation, options->launch, [&] { validate_embed(*options); },
          [&](Communicator& world, const Context& context) { embed_rank(*options, world, context); });
    };
  });
}

}  // namespace nought
