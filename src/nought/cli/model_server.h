// ModelServer: a loaded model behind OpenAI's API, on a socket of this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nought/cli/generation.h"
#include "nought/infer/inference_engine.h"
#include "nought/serve/api.h"

namespace nought {

struct ServeOptions : GenerationOptions {
  std::string host = "127.0.0.1", name = {}, chat_template = {}, tool_form = "auto", reasoning_form = "auto",
              pooling = "mean";
  uint16_t port = 8000;  // 0: any that is free
  InferenceEngine::Options engine = {.sequences = 4};
  int64_t max_waiting = 128;
  double drain_seconds = 30;
  std::chrono::milliseconds heartbeat{5000};  // see EngineLoop
  ApiOptions api = {};

  /// ConfigError names the option that is out of range.
  void check() const;
};

/// Adds the options of how a model is read and computed.
void add_engine_options(CLI::App& command, ServeOptions& options);

/// The keys of a file that its owner alone may read, one a line; none of "". ConfigError.
std::vector<std::string> read_api_keys(const std::string& path);

class ModelServer {
 public:
  /// Listens at once. On rank 0 of those that share the model, which leads the others. The model and they outlive
  /// it.
  ModelServer(ServeOptions options, LoadedModel& model, Communicator& ranks);
  ~ModelServer();
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;

  const ServedModel& model() const;
  uint16_t port() const;
  /// Serves, with the computations in this thread, until `wait` returns, which runs in a thread of its own; then what
  /// runs may end within drain_seconds. `failed` tells `wait` that computing has failed. Rethrows what either throws.
  void run(const std::function<void(const std::atomic<bool>& failed)>& wait);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// What the other ranks do: they compute what the server's rank does, until it ends.
void follow_server(const ServeOptions& options, LoadedModel& model, Communicator& ranks);

}  // namespace nought
