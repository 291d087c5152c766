#include "nought/serve/answer.h"

#include <utility>

#include "nought/base/text.h"
#include "nought/serve/api_error.h"

namespace nought {

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

OrderedJson bytes_of(const std::string& text) {
  OrderedJson bytes = OrderedJson::array();
  for (const char each : text) bytes.push_back(static_cast<uint8_t>(each));
  return bytes;
}

/// Unlike those of other calls. Templates of Mistral want nine letters and digits.
std::string call_id(ToolForm form, const std::string& answer, size_t choice, size_t call) {
  const std::string id = fmt::format("call_{}_{}_{}", answer.substr(answer.find('-') + 1), choice, call);
  if (form != ToolForm::mistral) return id;
  return fmt::format("{:016x}", std::hash<std::string>()(id)).substr(7);
}

}  // namespace

int status_of(const std::exception_ptr& error, std::string& message) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& refused) {
    message = refused.what();
    return refused.status();
  } catch (const ConfigError& refused) {
    message = refused.what();
    return 400;
  } catch (const std::exception& failed) {
    message = failed.what();
  }
  return 500;
}

std::string dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

/// One choice of an answer.
class Answer::Choice final : public RequestListener {
 public:
  Choice(std::shared_ptr<Answer> answer, size_t index, std::vector<int32_t> prompt)
      : answer_(std::move(answer)),
        index_(index),
        prompt_(std::move(prompt)),
        text_(answer_->tokenizer_, answer_->options_.stops),
        parser_(answer_->options_.parser) {
    if (answer_->options_.log_probabilities) clear_scores();
  }
  void on_start(int64_t cached) override {
    if (index_ == 0) answer_->cached_tokens_ = cached;
    if (answer_->options_.stream) answer_->begin_stream();
    if (answer_->options_.chat && answer_->options_.stream) send({{"role", "assistant"}, {"content", ""}}, nullptr);
    if (!answer_->options_.echo) return;
    add(answer_->tokenizer_.decode(prompt_));
    if (!answer_->options_.log_probabilities) return;
    add_score({.id = prompt_[0]}, /*known=*/false);
  }
  void on_prompt_token(const ScoredToken& token) override { add_score(token, true); }
  bool on_token(const ScoredToken& token) override {
    const auto now = std::chrono::steady_clock::now();
    if (tokens_++ == 0) {
      answer_->metrics_.first_token(seconds_since(answer_->begin_));
    } else {
      answer_->metrics_.token_after(std::chrono::duration<double>(now - last_).count());
    }
    last_ = now;
    if (answer_->options_.log_probabilities) add_score(token, true);
    if (parser_.thinks()) ++answer_->reasoning_tokens_;
    add(text_.push(token.id));
    return !text_.stopped() && (answer_->options_.parallel_calls || parser_.whole_calls() == 0);
  }
  void on_end(FinishReason reason, std::exception_ptr error) override {
    answer_->metrics_.request_ended(reason, seconds_since(answer_->begin_), std::ssize(prompt_), tokens_);
    answer_->new_tokens_ += tokens_;
    if (reason == FinishReason::cancelled)
      error = std::make_exception_ptr(ApiError(503, "the server stops before the answer is whole"));
    if (error) return answer_->fail(error);
    try {
      end(reason);
    } catch (...) {
      answer_->fail(std::current_exception());
    }
  }

 private:
  void end(FinishReason reason) {
    add(text_.finish());
    if (answer_->options_.chat) add_parts(parser_.finish());
    const bool cut = reason == FinishReason::length && !text_.stopped();
    const std::string why = cut ? "length" : parser_.calls() > 0 ? "tool_calls" : "stop";
    if (answer_->options_.stream) {
      send(answer_->options_.chat ? OrderedJson::object() : OrderedJson(""), why);
    } else {
      answer_->choices_[index_] = whole(why);
    }
    answer_->choice_ended();
  }
  void clear_scores() {
    scores_ = answer_->options_.chat ? OrderedJson{{"content", OrderedJson::array()}, {"refusal", nullptr}}
                                     : OrderedJson{{"tokens", OrderedJson::array()},
                                                   {"token_logprobs", OrderedJson::array()},
                                                   {"top_logprobs", OrderedJson::array()},
                                                   {"text_offset", OrderedJson::array()}};
  }
  /// "" for what the model has beyond the vocabulary of the tokenizer.
  std::string text_of(int32_t id) const {
    return id < answer_->tokenizer_.vocab_size() ? answer_->tokenizer_.decode(std::span(&id, 1)) : "";
  }
  /// known: whether the token has a log-probability; the first of a prompt has none.
  void add_score(const ScoredToken& token, bool known) {
    if (!answer_->options_.chat) {
      const std::string text = text_of(token.id);
      scores_["tokens"].push_back(text);
      scores_["token_logprobs"].push_back(known ? OrderedJson(token.log_probability) : OrderedJson());
      OrderedJson likeliest = OrderedJson::object();
      for (const TokenScore& each : token.likeliest) likeliest[text_of(each.id)] = each.log_probability;
      scores_["top_logprobs"].push_back(known ? likeliest : OrderedJson());
      scores_["text_offset"].push_back(std::exchange(offset_, offset_ + std::ssize(text)));
      return;
    }
    const auto entry = [&](const TokenScore& each) {
      const std::string text = text_of(each.id);
      return OrderedJson{{"token", text}, {"logprob", each.log_probability}, {"bytes", bytes_of(text)}};
    };
    OrderedJson score = entry({token.id, token.log_probability});
    score["top_logprobs"] = OrderedJson::array();
    for (const TokenScore& each : token.likeliest) score["top_logprobs"].push_back(entry(each));
    scores_["content"].push_back(std::move(score));
  }
  void add(const std::string& text) {
    if (answer_->options_.chat) return add_parts(parser_.push(text));
    if (!answer_->options_.stream) {
      content_ += text;
    } else if (!text.empty()) {
      send(text, nullptr);
    }
  }
  void add_parts(const std::vector<ReplyPart>& parts) {
    for (const ReplyPart& part : parts) {
      if (answer_->options_.stream) send(delta_of(part), nullptr);
      switch (part.kind) {
        case ReplyPart::Kind::content:
          if (!answer_->options_.stream) content_ += part.text;
          break;
        case ReplyPart::Kind::reasoning:
          if (!answer_->options_.stream) reasoning_ += part.text;
          break;
        case ReplyPart::Kind::call:
          calls_.push_back(new_call(part.text));
          break;
        case ReplyPart::Kind::arguments:
          if (!answer_->options_.stream) calls_.back()["function"]["arguments"].get_ref<std::string&>() += part.text;
          break;
      }
    }
  }
  OrderedJson new_call(const std::string& name) const {
    const ReplyParser::Options& options = answer_->options_.parser;
    return {{"id", call_id(options.tools, answer_->options_.id, index_, calls_.size())},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", ""}}}};
  }
  OrderedJson delta_of(const ReplyPart& part) const {
    if (part.kind == ReplyPart::Kind::content) return {{"content", part.text}};
    if (part.kind == ReplyPart::Kind::reasoning) return {{"reasoning_content", part.text}};
    const bool begins = part.kind == ReplyPart::Kind::call;
    OrderedJson call{{"index", begins ? calls_.size() : calls_.size() - 1}};
    call.update(begins ? new_call(part.text) : OrderedJson{{"function", {{"arguments", part.text}}}});
    return {{"tool_calls", OrderedJson::array({call})}};
  }
  /// part: the delta of a chat, or the text of a completion.
  void send(const OrderedJson& part, const OrderedJson& why) {
    OrderedJson choice{{"index", index_}};
    choice[answer_->options_.chat ? "delta" : "text"] = part;
    choice["logprobs"] = scores_;
    choice["finish_reason"] = why;
    choice["stop_reason"] = stop_reason();
    if (answer_->options_.log_probabilities) clear_scores();
    answer_->send_event(OrderedJson::array({choice}));
  }
  /// The stop string with which it ended, as vLLM has it.
  OrderedJson stop_reason() const {
    const AnswerOptions& options = answer_->options_;
    const bool named = text_.stopped() && text_.stop() < options.named_stops;
    return named ? OrderedJson(options.stops[text_.stop()]) : OrderedJson();
  }
  OrderedJson whole(const std::string& why) const {
    OrderedJson choice{{"index", index_}};
    if (answer_->options_.chat) {
      const bool only_calls = content_.empty() && !calls_.empty();
      OrderedJson message{
          {"role", "assistant"}, {"content", only_calls ? OrderedJson() : OrderedJson(content_)}, {"refusal", nullptr}};
      if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
      if (!calls_.empty()) message["tool_calls"] = calls_;
      choice["message"] = std::move(message);
    } else {
      choice["text"] = content_;
    }
    choice["logprobs"] = scores_;
    choice["finish_reason"] = why;
    choice["stop_reason"] = stop_reason();
    return choice;
  }

  std::shared_ptr<Answer> answer_;
  size_t index_;
  std::vector<int32_t> prompt_;
  TextStream text_;
  ReplyParser parser_;
  std::string content_, reasoning_;           // of an answer that is no stream
  OrderedJson calls_ = OrderedJson::array();  // of tools; of a stream without their arguments
  OrderedJson scores_;
  int64_t tokens_ = 0, offset_ = 0;
  std::chrono::steady_clock::time_point last_ = {};
};

Answer::Answer(AnswerOptions options, std::shared_ptr<HttpReply> reply, const Tokenizer& tokenizer,
               ServeMetrics& metrics)
    : options_(std::move(options)), reply_(std::move(reply)), tokenizer_(tokenizer), metrics_(metrics) {}

std::shared_ptr<RequestListener> Answer::add_choice(std::vector<int32_t> prompt, bool counts_prompt) {
  if (counts_prompt) prompt_tokens_ += std::ssize(prompt);
  ++choices_left_;
  choices_.push_back(nullptr);
  return std::make_shared<Choice>(shared_from_this(), choices_.size() - 1, std::move(prompt));
}

OrderedJson Answer::frame(bool chunk) const {
  const char* object = !options_.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", options_.id}, {"object", object}, {"created", options_.created}, {"model", options_.model}};
}

void Answer::begin_stream() {
  if (!std::exchange(begun_, true)) reply_->begin("text/event-stream", {{"Cache-Control", "no-cache"}});
}

void Answer::send_event(OrderedJson choices) {
  OrderedJson event = frame(/*chunk=*/true);
  event["choices"] = std::move(choices);
  if (options_.include_usage) event["usage"] = nullptr;
  reply_->write("data: " + dump(event) + "\n\n");
}

void Answer::fail(const std::exception_ptr& error) {
  if (std::exchange(failed_, true)) return;
  std::string message;
  const int status = status_of(error, message);
  if (!begun_) return reply_->send(status, "application/json", error_body(status, message));
  reply_->write("data: " + error_body(status, message) + "\n\n");
  reply_->finish();
}

OrderedJson Answer::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", new_tokens_},
          {"total_tokens", prompt_tokens_ + new_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}}};
}

void Answer::choice_ended() {
  if (--choices_left_ > 0 || failed_) return;
  if (!options_.stream) {
    OrderedJson body = frame(/*chunk=*/false);
    body["choices"] = choices_;
    body["usage"] = usage();
    return reply_->send(200, "application/json", dump(body));
  }
  if (options_.include_usage) {
    OrderedJson event = frame(/*chunk=*/true);
    event["choices"] = OrderedJson::array();
    event["usage"] = usage();
    reply_->write("data: " + dump(event) + "\n\n");
  }
  reply_->write("data: [DONE]\n\n");
  reply_->finish();
}

}  // namespace nought
