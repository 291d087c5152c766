// nought serve: a model over HTTP, by OpenAI's API.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include <fmt/ranges.h>

#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/launch.h"
#include "nought/cli/model_server.h"
#include "nought/cli/stop_signals.h"
#include "nought/comm/flight_timeout.h"
#include "nought/comm/mpi.h"

namespace nought {

namespace {

struct ServeFlags : ServeOptions {
  std::string api_key_file;
  LaunchOptions launch = {.ranks = {}, .hostfile = {}, .finishes_step = true};
  GenerationSizes sizes;
  int64_t collective_timeout = 300;

  /// What shows without the model's weights.
  void check() const {
    ServeOptions::check();
    require<ConfigError>(2 <= collective_timeout && collective_timeout <= 86400,
                         "--collective-timeout must be 2 to 86400 seconds, got {}", collective_timeout);
    check_mesh(*this, launch, sizes);
  }
};

void announce(const ServeFlags& options, const ModelServer& server) {
  const ServedModel& served = server.model();
  fmt::print(stderr, "[{} at http://{}:{}/v1: {} sequences of {} tokens{}]\n", served.name, options.host, server.port(),
             options.engine.sequences, served.max_context, served.chat ? "" : "; no chat: " + served.no_chat);
  std::vector<std::string> names;
  for (const ServedAdapter& each : served.adapters) names.push_back(each.name);
  if (!names.empty()) fmt::print(stderr, "[adapters: {}]\n", fmt::join(names, ", "));
  if (options.host != "127.0.0.1" && options.host != "localhost" && options.host != "::1")
    fmt::print(stderr, "[other machines can reach it{}]\n", options.api.keys.empty() ? " without a key" : "");
}

/// Whether a job of several ranks is being ended because one of them has: a wish to stop comes as SIGUSR1.
bool job_ends(const Communicator& world) { return world.size() > 1 && StopSignals::asked() == SIGTERM; }

/// Serves on rank 0 until a signal.
void serve(const ServeFlags& options, LoadedModel& model, Communicator& world) {
  ModelServer server(options, model, world);
  announce(options, server);
  try {
    server.run([&world](const std::atomic<bool>& failed) {
      constexpr std::chrono::milliseconds kOften{50};
      while (StopSignals::asked() == 0 && !failed) std::this_thread::sleep_for(kOften);
      // The step that waits for the rank that is gone ends, and with it all answers.
      if (job_ends(world)) return MpiWorld::cancel("the server ends, because one of its ranks has: try again later");
      if (world.size() > 1 && !failed) fmt::print(stderr, "{}", kDrainWord);
    });
  } catch (const CommError&) {
    if (job_ends(world)) MpiWorld::abort(exit_code_of(SIGTERM));  // that rank has said why
    throw;
  }
}

/// Serves, or computes for the rank that does, until a signal, which it returns.
int run_serve(ServeFlags options, Communicator& world, const Context& context) {
  const FlightFolder flight(world, own_flight_folder(world, context));
  const std::chrono::milliseconds timeout = std::chrono::seconds(options.collective_timeout);
  world.set_timeout(timeout);
  options.heartbeat = std::min(options.heartbeat, timeout / 4);
  options.api.keys = read_api_keys(options.api_key_file);
  LoadedModel model(options, world, context, options.sizes);
  const StopSignals signals(/*announce=*/false);
  if (world.rank() == 0) {
    serve(options, model, world);
  } else {
    follow_server(options, model, world);
  }
  return StopSignals::asked();
}

}  // namespace

void add_serve(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "serve", "Serves a model over HTTP, by OpenAI's API",
                  {"nought serve MODEL_DIR", "nought serve MODEL_DIR --port 8080 --parallel 16 --max-context 8192",
                   "nought serve MODEL_DIR --host 0.0.0.0 --api-key-file keys.txt",
                   "nought serve MODEL_DIR --adapter sql=out/sql --adapter tone=out/tone",
                   "nought serve MODEL_DIR --ranks 4 --tp 2 --pp 2"});
  const auto options = std::make_shared<ServeFlags>();
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  add_engine_options(*command, *options);
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
  command->add_option("--max-waiting", options->max_waiting, "How many requests may wait; others are refused with 429")
      ->capture_default_str();
  command
      ->add_option("--api-key-file", options->api_key_file,
                   "A file that you alone may read, with a key on each line; requests need one of them")
      ->type_name("FILE");
  command->add_option("--cors", options->api.cors, "The origin whose web pages may ask; *: all")->type_name("ORIGIN");
  command->add_option("--drain-seconds", options->drain_seconds, "After a signal, how long answers may take to end")
      ->capture_default_str();
  command
      ->add_option("--collective-timeout", options->collective_timeout,
                   "Seconds that ranks wait for each other in a step before the server ends")
      ->capture_default_str();
  add_mesh_options(*command, options->sizes);
  add_launch_options(*command, options->launch);
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
