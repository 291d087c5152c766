// nought serve: a model over HTTP, by OpenAI's API.
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include <sys/stat.h>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/cli/stop_signals.h"
#include "nought/io/files.h"
#include "nought/serve/api.h"
#include "nought/serve/api_error.h"

namespace nought {

namespace {

struct ServeFlags : GenerationOptions {
  std::string host = "127.0.0.1", name, chat_template, api_key_file, tool_form = "auto", reasoning_form = "auto",
              pooling = "mean";
  uint16_t port = 8000;
  InferenceEngine::Options engine = {.sequences = 4};
  int64_t max_waiting = 128;
  double drain_seconds = 30;
  ApiOptions api;
  LaunchOptions launch;

  void check() const {
    require<ConfigError>(2 <= engine.capacity && engine.capacity <= kMostTokens,
                         "--max-context must be 2 to {}, got {}", kMostTokens, engine.capacity);
    require<ConfigError>(1 <= engine.sequences && engine.sequences <= kMostSequences,
                         "--parallel must be 1 to {}, got {}", kMostSequences, engine.sequences);
    require<ConfigError>(1 <= engine.max_batch_tokens && engine.max_batch_tokens <= kMostTokens,
                         "--max-batch-tokens must be 1 to {}, got {}", kMostTokens, engine.max_batch_tokens);
    require<ConfigError>(max_waiting >= 0, "--max-waiting must be at least 0, got {}", max_waiting);
    require<ConfigError>(pooling == "mean" || pooling == "last" || pooling == "cls",
                         "--pooling must be mean, last or cls, got {}", pooling);
    require<ConfigError>(drain_seconds >= 0, "--drain-seconds must be at least 0, got {}", drain_seconds);
  }
};

/// The keys of a file, one a line.
std::vector<std::string> read_keys(const std::string& path) {
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

/// The form of that name, or of what "auto" finds.
template <class Form, class Find>
Form form_of(const std::string& flag, const std::string& name, const Find& find) {
  if (const auto form = enum_named<Form>(name)) return *form;
  require<ConfigError>(name == "auto", "{} {}: expected one of auto, {}", flag, name,
                       fmt::join(enum_names<Form>(), ", "));
  return find();
}

/// What the API knows of a loaded model, and its chat template.
class Served {
 public:
  Served(ServeFlags& options, LoadedModel& model)
      : model_{.name = options.name.empty() ? default_name(model) : options.name, .tokenizer = model.tokenizer()} {
    use_generation_config(model.folder(), options, /*says=*/true);
    model_.sampling = options.generate.sampling;
    model_.vocab_size = model.decoder().config().vocab_size;
    model_.hidden_size = model.decoder().config().hidden_size;
    model_.max_context = options.engine.capacity;
    model_.pooling = options.pooling == "last"  ? Pooling::last
                     : options.pooling == "cls" ? Pooling::cls
                                                : Pooling::mean;
    model_.created = std::time(nullptr);
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

/// Waits for a signal, lets what runs end, and stops the engine. Returns the signal.
int wait_for_stop(Api& api, EngineLoop& engine, double drain_seconds, const std::atomic<bool>& failed) {
  constexpr std::chrono::milliseconds kOften{50};
  while (StopSignals::asked() == 0 && !failed) std::this_thread::sleep_for(kOften);
  api.stop_accepting();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(drain_seconds);
  while (!failed && !engine.idle() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kOften);
  engine.stop();
  return StopSignals::asked();
}

int run_serve(ServeFlags options, Communicator& self, const Context& context) {
  options.api.keys = read_keys(options.api_key_file);
  LoadedModel model(options, self, context);
  model.require_tokenizer();
  model.tokenizer().check_fits(model.decoder().config().vocab_size);
  options.engine.capacity = std::min(options.engine.capacity, model.decoder().config().most_cached());
  const Served served(options, model);
  InferenceEngine engine(model.decoder(), context, model.dtype(), options.engine);
  EngineLoop loop(engine, options.max_waiting);
  Api api(served.model(), loop, options.engine.capacity * options.engine.sequences, options.api);
  HttpServer server(
      options.host, options.port, {},
      [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) { api.handle(request, reply); },
      error_body);
  const StopSignals signals(/*announce=*/false);
  fmt::print(stderr, "[{} at http://{}:{}/v1: {} sequences of {} tokens{}]\n", served.model().name, options.host,
             server.port(), options.engine.sequences, options.engine.capacity,
             served.model().chat ? "" : "; no chat: " + served.model().no_chat);
  if (options.host != "127.0.0.1" && options.host != "localhost" && options.host != "::1")
    fmt::print(stderr, "[other machines can reach it{}]\n", options.api.keys.empty() ? " without a key" : "");
  std::atomic<bool> failed = false;
  int signal = 0;
  std::thread serving([&] { server.run(); });
  std::thread waiting([&] { signal = wait_for_stop(api, loop, options.drain_seconds, failed); });
  std::exception_ptr error;
  try {
    loop.run();
  } catch (...) {
    error = std::current_exception();
    failed = true;
  }
  waiting.join();
  server.stop(/*seconds=*/2);
  serving.join();
  if (error) std::rethrow_exception(error);
  return signal;
}

}  // namespace

void add_serve(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "serve", "Serves a model over HTTP, by OpenAI's API",
                  {"nought serve MODEL_DIR", "nought serve MODEL_DIR --port 8080 --parallel 16 --max-context 8192",
                   "nought serve MODEL_DIR --host 0.0.0.0 --api-key-file keys.txt"});
  const auto options = std::make_shared<ServeFlags>();
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("--tokenizer", options->tokenizer,
                      "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes");
  add_adapter_options(*command, options->adapters);
  command->add_option("--chat-template", options->chat_template,
                      fmt::format("How conversations are written: a Jinja file, or one of {}; default: the model's own",
                                  chat_format_names()));
  command
      ->add_option(
          "--tool-call-parser", options->tool_form,
          "How the model writes calls of tools: auto (as its chat template does), hermes, llama3_json, mistral, "
          "deepseek_v3 or none")
      ->capture_default_str();
  command
      ->add_option(
          "--reasoning-parser", options->reasoning_form,
          "How the model writes its thinking: auto, qwen3 (<think>), deepseek_r1 (replies begin inside) or none")
      ->capture_default_str();
  command
      ->add_option("--pooling", options->pooling,
                   "Which hidden states are an embedding: the mean of all, the last, or the first (cls)")
      ->capture_default_str();
  command->add_option("--model-name", options->name, "What requests call the model; default: its folder's name");
  command->add_option("--host", options->host, "The address to listen on; 0.0.0.0: of all networks")
      ->capture_default_str();
  command->add_option("--port", options->port, "The port to listen on; 0: any that is free")->capture_default_str();
  command->add_option("--parallel", options->engine.sequences, "How many requests are computed together")
      ->capture_default_str();
  command
      ->add_option("--max-context", options->engine.capacity,
                   "Tokens of a request, prompt and answer together; the cache has room for --parallel times as many")
      ->capture_default_str();
  command
      ->add_option("--max-batch-tokens", options->engine.max_batch_tokens,
                   "Tokens of a step: a long prompt is computed in parts, beside the tokens of others")
      ->capture_default_str();
  command->add_option("--max-waiting", options->max_waiting, "How many requests may wait; others are refused with 429")
      ->capture_default_str();
  command
      ->add_option("--api-key-file", options->api_key_file,
                   "A file that you alone may read, with a key on each line; requests need one of them")
      ->type_name("FILE");
  command->add_option("--cors", options->api.cors, "The origin whose web pages may ask; *: all")->type_name("ORIGIN");
  command->add_option("--drain-seconds", options->drain_seconds, "After a signal, how long answers may take to end")
      ->capture_default_str();
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      int signal = 0;
      const int code = launch(
          invocation, options->launch, [&] { options->check(); },
          [&](Communicator& self, const Context& context) { signal = run_serve(*options, self, context); });
      return signal == 0 ? code : exit_code_of(signal);
    };
  });
}

}  // namespace nought
