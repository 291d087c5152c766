// Api: answers the requests of OpenAI's API, and those by which servers are watched.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "nought/serve/answer_constraint.h"
#include "nought/serve/engine_loop.h"
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
  void generate(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply, bool chat);
  std::string models() const;
  std::string tokenize(const HttpRequest& request) const;
  std::string detokenize(const HttpRequest& request) const;

  const ServedModel& model_;
  EngineLoop& engine_;
  int64_t cache_tokens_;
  ApiOptions options_;
  ServeMetrics metrics_;
  AnswerMasks masks_;
  uint64_t first_id_, requests_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace nought
