#include "nought/cli/model_server.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>

#include "nought/base/text.h"
#include "nought/cli/speculation.h"
#include "nought/io/files.h"
#include "nought/serve/api_error.h"

namespace nought {

namespace {

/// The form of that name, or of what "auto" finds.
template <class Form, class Find>
Form form_of(const std::string& flag, const std::string& name, const Find& find) {
  if (const auto form = enum_named<Form>(name)) return *form;
  require<ConfigError>(name == "auto", "{} {}: expected one of auto, {}", flag, name,
                       fmt::join(enum_names<Form>(), ", "));
  return find();
}

}  // namespace

/// What the API knows of a loaded model, and its chat template.
class ModelDescription {
 public:
  ModelDescription(ServeOptions& options, LoadedModel& model)
      : model_{.name = options.name.empty() ? default_name(model) : options.name, .tokenizer = model.tokenizer()} {
    use_generation_config(model.folder(), options, /*says=*/true);
    model_.sampling = options.generate.sampling;
    model_.vocab_size = model.decoder().config().vocab_size;
    model_.hidden_size = model.decoder().config().hidden_size;
    model_.max_context = options.engine.capacity;
    model_.pooling = options.pooling == "last"  ? PoolingMode::lasttoken
                     : options.pooling == "cls" ? PoolingMode::cls
                                                : PoolingMode::mean;
    model_.created = std::time(nullptr);
    for (const NamedAdapter& each : model.adapters()) {
      require<ConfigError>(each.name != model_.name,
                           "--adapter {}: this is the name of the model itself (--model-name)", each.name);
      model_.adapters.push_back({each.name, each.use.folder.string()});
    }
    model_.text_stop_ids = model.stop_ids(/*of_text=*/true);
    model_.chat_stop_ids = model.stop_ids(/*of_text=*/false);
    try {
      template_ = std::make_unique<ChatTemplate>(model.chat_source(options.chat_template), model.tokenizer());
    } catch (const ConfigError& error) {
      if (!options.chat_template.empty()) throw;
      model_.no_chat = error.what();
      return;
    }
    model_.chat = template_.get();
    for (const int32_t id : template_->stop_ids()) model_.chat_stop_ids.push_back(id);
    model_.chat_stops = template_->missing_markers();
    model_.tool_form = form_of<ToolForm>("--tool-call-parser", options.tool_form,
                                         [&] { return tool_form_of(*template_, model.tokenizer()); });
    model_.reasoning_form = form_of<ReasoningForm>("--reasoning-parser", options.reasoning_form,
                                                   [&] { return reasoning_form_of(*template_, model.tokenizer()); });
  }
  const ServedModel& model() const { return model_; }

 private:
  static std::string default_name(const LoadedModel& model) {
    const auto folder = std::filesystem::weakly_canonical(model.folder());
    return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  ServedModel model_;
  std::unique_ptr<ChatTemplate> template_;
};

void ServeOptions::check() const {
  require<ConfigError>(2 <= engine.capacity && engine.capacity <= kMostTokens, "--max-context must be 2 to {}, got {}",
                       kMostTokens, engine.capacity);
  require<ConfigError>(1 <= engine.sequences && engine.sequences <= kMostSequences,
                       "--parallel must be 1 to {}, got {}", kMostSequences, engine.sequences);
  require<ConfigError>(1 <= engine.max_batch_tokens && engine.max_batch_tokens <= kMostTokens,
                       "--max-batch-tokens must be 1 to {}, got {}", kMostTokens, engine.max_batch_tokens);
  speculation.check();
  require<ConfigError>(max_waiting >= 0, "--max-waiting must be at least 0, got {}", max_waiting);
  require<ConfigError>(pooling == "mean" || pooling == "last" || pooling == "cls",
                       "--pooling must be mean, last or cls, got {}", pooling);
  require<ConfigError>(drain_seconds >= 0, "--drain-seconds must be at least 0, got {}", drain_seconds);
}

std::vector<std::string> read_api_keys(const std::string& path) {
  std::vector<std::string> keys;
  if (path.empty()) return keys;
  const std::string text = read_text(path);
  struct stat status {};
  require<ConfigError>(stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0,
                       "--api-key-file {}: others may read it: chmod 600 {}", path, path);
  for (const std::string& line : split(text, '\n'))
    if (const auto end = line.find_last_not_of(" \r\t"); end != std::string::npos)
      keys.push_back(line.substr(0, end + 1));
  require<ConfigError>(!keys.empty(), "--api-key-file {}: expected a key on each line, found none", path);
  return keys;
}

void add_engine_options(CLI::App& command, ServeOptions& options) {
  command.add_option("--tokenizer", options.tokenizer,
                     "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes");
  add_adapter_choices(command, options.adapters);
  command.add_option("--parallel", options.engine.sequences, "How many requests are computed together")
      ->capture_default_str();
  command
      .add_option("--max-context", options.engine.capacity,
                  "Tokens of a request, prompt and answer together; the cache has room for --parallel times as many")
      ->capture_default_str();
  add_kv_dtype_option(command, options.engine.kv_dtype);
  add_speculation_options(command, options.speculation);
  command
      .add_option("--max-batch-tokens", options.engine.max_batch_tokens,
                  "Tokens of a step: a long prompt is computed in parts, beside the tokens of others")
      ->capture_default_str();
}

namespace {

/// Tokens are guessed by the rank alone that schedules.
InferenceEngine::Options with_speculation(const ServeOptions& options, const LoadedModel& model) {
  InferenceEngine::Options engine = options.engine;
  engine.speculation = make_speculation(options, model, engine.cache());
  return engine;
}

}  // namespace

struct ModelServer::Parts {
  Parts(ServeOptions given, LoadedModel& model, Communicator& ranks)
      : options(std::move(given)),
        served(options, model),
        engine(model.decoder(), model.context(), model.dtype(), with_speculation(options, model), &ranks),
        loop(engine, options.max_waiting, options.heartbeat),
        api(served.model(), loop, options.engine.capacity * options.engine.sequences, options.api),
        server(
            options.host, options.port, {},
            [this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) { api.handle(request, reply); },
            error_body) {}

  ServeOptions options;
  const ModelDescription served;
  InferenceEngine engine;
  EngineLoop loop;
  Api api;
  HttpServer server;
};

namespace {

/// What fits the model.
ServeOptions fitted(ServeOptions options, LoadedModel& model) {
  model.require_tokenizer();
  model.tokenizer().check_fits(model.decoder().config().vocab_size);
  options.engine.capacity = std::min(options.engine.capacity, model.decoder().config().most_cached());
  return options;
}

}  // namespace

ModelServer::ModelServer(ServeOptions options, LoadedModel& model, Communicator& ranks)
    : parts_(std::make_unique<Parts>(fitted(std::move(options), model), model, ranks)) {}
ModelServer::~ModelServer() = default;

const ServedModel& ModelServer::model() const { return parts_->served.model(); }
uint16_t ModelServer::port() const { return parts_->server.port(); }

void ModelServer::run(const std::function<void(const std::atomic<bool>& failed)>& wait) {
  constexpr std::chrono::milliseconds kOften{50};
  Parts& parts = *parts_;
  std::atomic<bool> failed = false;
  std::exception_ptr error, waiting_error;
  std::thread serving([&] { parts.server.run(); });
  std::thread waiting([&] {
    try {
      wait(failed);
    } catch (...) {
      waiting_error = std::current_exception();
    }
    parts.api.stop_accepting();
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(parts.options.drain_seconds);
    while (!failed && !parts.loop.idle() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kOften);
    parts.loop.stop();
  });
  try {
    parts.loop.run();
  } catch (...) {
    error = std::current_exception();
    failed = true;
  }
  waiting.join();
  parts.server.stop(/*seconds=*/2);
  serving.join();
  if (error) std::rethrow_exception(error);
  if (waiting_error) std::rethrow_exception(waiting_error);
}

void follow_server(const ServeOptions& options, LoadedModel& model, Communicator& ranks) {
  const InferenceEngine::Options engine = fitted(options, model).engine;
  CachedDecoder(model.decoder(), model.context(), model.dtype(), engine.cache(), &ranks).follow();
}

}  // namespace nought
