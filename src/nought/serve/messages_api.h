// Anthropic's /v1/messages, in terms of OpenAI's chats.
//
// A request becomes the body of a chat, and what is answered to that, whole or event by event, becomes Anthropic's
// answer. So both are honoured by the same code.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/serve/http_server.h"

namespace nought {

/// The body of /v1/chat/completions that asks for the same. counts: for count_tokens, which takes no "max_tokens".
/// ApiError for each field that is wrong or not supported.
OrderedJson chat_of_messages(std::string_view body, bool counts);

/// Takes the answer to a chat, and gives `reply` what Anthropic's API has for it.
class MessagesReply final : public HttpReply {
 public:
  explicit MessagesReply(std::shared_ptr<HttpReply> reply) : reply_(std::move(reply)) {}
  /// Before the answer begins: how many tokens the prompt has.
  void set_prompt_tokens(int64_t count) { prompt_tokens_ = count; }

  void send(int status, std::string_view content_type, std::string body, const Headers& headers) override;
  void begin(std::string_view content_type, const Headers& headers) override { reply_->begin(content_type, headers); }
  void write(std::string piece) override;
  void finish() override { reply_->finish(); }
  void on_gone(std::function<void()> gone) override { reply_->on_gone(std::move(gone)); }

 private:
  void take(const OrderedJson& event);
  void take_delta(const OrderedJson& delta);
  /// Ends the block that is open, and begins another; null: none.
  void begin_block(const OrderedJson& block);
  void send_delta(const char* type, const char* field, const OrderedJson& text);
  void send_event(const std::string& type, OrderedJson fields);

  std::shared_ptr<HttpReply> reply_;
  int64_t prompt_tokens_ = 0;
  int64_t blocks_ = 0;     // that have begun
  std::string kind_ = {};  // of the one that is open; "": none
  OrderedJson reason_, stop_;
};

}  // namespace nought
