// Api: answers the requests of OpenAI's API, and those by which servers are watched.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "nought/serve/answer_constraint.h"
#include "nought/serve/engine_loop.h"
#include "nought/serve/generation_request.h"
#include "nought/serve/http_server.h"
#include "nought/serve/serve_metrics.h"
#include "nought/serve/served_model.h"

namespace nought {

struct ApiOptions {
  std::vector<std::string> keys = {};  // one of them must come with a request; none: all requests are served
  std::string cors = {};               // the Access-Control-Allow-Origin of answers; "": none
};

class Api {
 public:
  Api(const ServedModel& model, EngineLoop& engine, int64_t cache_tokens, ApiOptions options);
  /// HttpServer::Handler.
  void handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  /// From now on /health and new work get 503. Thread safe.
  void stop_accepting() { stopping_ = true; }

 private:
  void route(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void check_key(const HttpRequest& request) const;
  void generate(GenerationRequest read, const std::shared_ptr<HttpReply>& reply);
  void answer_messages(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  /// Hands requests to the engine, and ends them with the client. ApiError if there is no room for them.
  void submit(EngineLoop::Requests requests, const std::shared_ptr<HttpReply>& reply);
  /// The model, and behind it the adapters.
  OrderedJson models() const;
  std::string tokenize(const HttpRequest& request) const;
  std::string detokenize(const HttpRequest& request) const;

  const ServedModel& model_;
  EngineLoop& engine_;
  int64_t cache_tokens_;
  ApiOptions options_;
  ServeMetrics metrics_;
  AnswerMasks masks_;
  uint64_t next_number_;  // of requests: their ids, and seeds for those without
  std::atomic<bool> stopping_ = false;
};

}  // namespace nought
