// Answer: writes what a request generates as OpenAI's API has it, whole or as a stream of events.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/infer/inference_engine.h"
#include "nought/infer/text_stream.h"
#include "nought/serve/http_server.h"
#include "nought/serve/reply_parser.h"
#include "nought/serve/serve_metrics.h"

namespace nought {

struct AnswerOptions {
  bool chat = false;  // chat.completion, else text_completion
  bool stream = false, include_usage = false, echo = false;
  bool log_probabilities = false;
  std::string model = {}, id = {};
  int64_t created = 0;
  std::vector<std::string> stops = {};
  size_t named_stops = 0;  // how many of them, from the first on, the request has named: "stop_reason" tells of these
  ReplyParser::Options parser = {};  // of chats
  bool parallel_calls = true;        // false: a reply ends with its first call of a tool
};

/// All but the constructor is used in the engine's thread.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(AnswerOptions options, std::shared_ptr<HttpReply> reply, const Tokenizer& tokenizer, ServeMetrics& metrics);
  /// What hears the request of the next choice. All are made before the first is submitted.
  std::shared_ptr<RequestListener> add_choice(std::vector<int32_t> prompt, bool counts_prompt);

 private:
  class Choice;
  OrderedJson frame(bool chunk) const;
  void send_event(OrderedJson choices);
  void begin_stream();
  void fail(const std::exception_ptr& error);
  void choice_ended();
  OrderedJson usage() const;

  AnswerOptions options_;
  std::shared_ptr<HttpReply> reply_;
  const Tokenizer& tokenizer_;
  ServeMetrics& metrics_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  OrderedJson choices_ = OrderedJson::array();  // whole ones, by index
  int64_t choices_left_ = 0, prompt_tokens_ = 0, new_tokens_ = 0, cached_tokens_ = 0, reasoning_tokens_ = 0;
  bool begun_ = false, failed_ = false;
};

/// The status that tells of an error, and its message.
int status_of(const std::exception_ptr& error, std::string& message);
/// JSON as text; bytes that are no UTF-8 become U+FFFD.
std::string dump(const OrderedJson& json);

}  // namespace nought
