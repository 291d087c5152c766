// Embeddings: /v1/embeddings of OpenAI's API.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nought/infer/inference_engine.h"
#include "nought/serve/http_server.h"
#include "nought/serve/serve_metrics.h"
#include "nought/serve/served_model.h"

namespace nought {

struct EmbeddingRequest {
  std::vector<std::vector<int32_t>> prompts = {};
  int64_t dimensions = 0;  // how many of the first values are kept; 0: all
  bool base64 = false;     // values as text, 32-bit floats with the least byte first
  int32_t adapter = kNoAdapter;
};
/// ApiError for each field that is wrong or not supported.
EmbeddingRequest read_embedding_request(std::string_view body, const ServedModel& model);

/// The first `dimensions` values (0: all) at length 1.
std::vector<float> normalised(std::vector<float> values, int64_t dimensions);
std::string base64_of(const std::vector<float>& values);

/// Listeners for each prompt, which together answer when all have ended.
std::vector<std::shared_ptr<RequestListener>> embedding_listeners(const EmbeddingRequest& request,
                                                                  const ServedModel& model,
                                                                  std::shared_ptr<HttpReply> reply,
                                                                  ServeMetrics& metrics);

}  // namespace nought
