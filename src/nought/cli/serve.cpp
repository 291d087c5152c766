// nought serve: a model over HTTP, by OpenAI's API.
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/launch.h"
#include "nought/cli/model_server.h"
#include "nought/cli/stop_signals.h"

namespace nought {

namespace {

struct ServeFlags : ServeOptions {
  std::string api_key_file;
  LaunchOptions launch;
};

/// Serves until a signal, which it returns.
int run_serve(ServeFlags options, Communicator& self, const Context& context) {
  options.api.keys = read_api_keys(options.api_key_file);
  LoadedModel model(options, self, context);
  ModelServer server(options, model, context);
  const ServedModel& served = server.model();
  const StopSignals signals(/*announce=*/false);
  fmt::print(stderr, "[{} at http://{}:{}/v1: {} sequences of {} tokens{}]\n", served.name, options.host, server.port(),
             options.engine.sequences, served.max_context, served.chat ? "" : "; no chat: " + served.no_chat);
  if (options.host != "127.0.0.1" && options.host != "localhost" && options.host != "::1")
    fmt::print(stderr, "[other machines can reach it{}]\n", options.api.keys.empty() ? " without a key" : "");
  server.run([](const std::atomic<bool>& failed) {
    constexpr std::chrono::milliseconds kOften{50};
    while (StopSignals::asked() == 0 && !failed) std::this_thread::sleep_for(kOften);
  });
  return StopSignals::asked();
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
