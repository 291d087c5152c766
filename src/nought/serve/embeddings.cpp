#include "nought/serve/embeddings.h"

#include <bit>
#include <chrono>
#include <cmath>

#include "nought/base/base64.h"
#include "nought/serve/answer.h"
#include "nought/serve/generation_request.h"
#include "nought/serve/json_fields.h"

namespace nought {

namespace {

/// The answer to all prompts of a request. Used in the engine's thread.
class EmbeddingAnswer {
 public:
  EmbeddingAnswer(const EmbeddingRequest& request, std::string model, std::shared_ptr<HttpReply> reply,
                  ServeMetrics& metrics)
      : request_(request), model_(std::move(model)), reply_(std::move(reply)), metrics_(metrics) {
    for (const std::vector<int32_t>& prompt : request.prompts) tokens_ += std::ssize(prompt);
    left_ = std::ssize(request.prompts);
    data_ = OrderedJson::array();
    for (int64_t i = 0; i < left_; ++i) data_.push_back(nullptr);
  }
  void take(size_t index, const std::vector<float>& values) {
    const std::vector<float> unit = normalised(values, request_.dimensions);
    data_[index] = {{"object", "embedding"},
                    {"index", index},
                    {"embedding", request_.base64 ? OrderedJson(base64_of(unit)) : OrderedJson(unit)}};
  }
  void end(size_t index, FinishReason reason, const std::exception_ptr& error) {
    metrics_.request_ended(reason, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(),
                           std::ssize(request_.prompts[index]), 0);
    if (!failed_ && (error || reason != FinishReason::stop)) {
      failed_ = true;
      std::string message = "the server stops before the answer is whole";
      const int status = error ? status_of(error, message) : 503;
      reply_->send(status, "application/json", error_body(status, message));
    }
    if (--left_ > 0 || failed_) return;
    reply_->send(200, "application/json",
                 dump({{"object", "list"},
                       {"data", std::move(data_)},
                       {"model", model_},
                       {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}}));
  }

 private:
  EmbeddingRequest request_;
  std::string model_;
  std::shared_ptr<HttpReply> reply_;
  ServeMetrics& metrics_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  OrderedJson data_;
  int64_t left_ = 0, tokens_ = 0;
  bool failed_ = false;
};

class EmbeddingListener final : public RequestListener {
 public:
  EmbeddingListener(std::shared_ptr<EmbeddingAnswer> answer, size_t index)
      : answer_(std::move(answer)), index_(index) {}
  bool on_token(const ScoredToken&) override { return false; }
  void on_embedding(const std::vector<float>& values) override { answer_->take(index_, values); }
  void on_end(FinishReason reason, std::exception_ptr error) override { answer_->end(index_, reason, error); }

 private:
  std::shared_ptr<EmbeddingAnswer> answer_;
  size_t index_;
};

}  // namespace

EmbeddingRequest read_embedding_request(std::string_view body, const ServedModel& model) {
  const OrderedJson json = parse_body(body);
  JsonFields fields(json);
  EmbeddingRequest request;
  request.adapter = read_model(fields, model);
  const OrderedJson* input = fields.find("input");
  if (!input) fields.wrong("input", "a text, texts, token ids, or lists of token ids");
  request.dimensions = fields.integer("dimensions", 1, model.hidden_size).value_or(0);
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.wrong("encoding_format", "\"float\" or \"base64\"");
  request.base64 = format == "base64";
  fields.ignore({"user"});
  fields.finish();
  request.prompts = read_prompts(*input, model, "input");
  for (const std::vector<int32_t>& prompt : request.prompts)
    if (std::ssize(prompt) > model.max_context)
      throw ApiError(400,
                     fmt::format("input: {} tokens exceed the {} of the context", prompt.size(), model.max_context),
                     "input", "context_length_exceeded");
  return request;
}

std::vector<float> normalised(std::vector<float> values, int64_t dimensions) {
  if (dimensions > 0) values.resize(static_cast<size_t>(dimensions));
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  if (squares == 0) return values;
  for (float& value : values) value = static_cast<float>(value / std::sqrt(squares));
  return values;
}

std::string base64_of(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const auto word = std::bit_cast<uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) bytes += static_cast<char>(word >> (8 * byte) & 0xFF);
  }
  return encode_base64(bytes);
}

std::vector<std::shared_ptr<RequestListener>> embedding_listeners(const EmbeddingRequest& request,
                                                                  const ServedModel& model,
                                                                  std::shared_ptr<HttpReply> reply,
                                                                  ServeMetrics& metrics) {
  const auto answer =
      std::make_shared<EmbeddingAnswer>(request, model.name_of(request.adapter), std::move(reply), metrics);
  std::vector<std::shared_ptr<RequestListener>> listeners;
  for (size_t i = 0; i < request.prompts.size(); ++i)
    listeners.push_back(std::make_shared<EmbeddingListener>(answer, i));
  return listeners;
}

}  // namespace nought
