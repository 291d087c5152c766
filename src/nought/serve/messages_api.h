// Anthropic's /v1/messages, in terms of OpenAI's chats.
//
// A request becomes the body of a chat, and what is answered to that, whole or event by event, becomes Anthropic's
// answer. So both are honoured by the same code.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/serve/translated_reply.h"

namespace nought {

/// The body of /v1/chat/completions that asks for the same. counts: for count_tokens, which takes no "max_tokens".
/// ApiError for each field that is wrong or not supported.
OrderedJson chat_of_messages(std::string_view body, bool counts);

/// Takes the answer to a chat, and gives `reply` what Anthropic's API has for it.
class MessagesReply final : public TranslatedReply {
 public:
  using TranslatedReply::TranslatedReply;
  /// Before the answer begins: how many tokens the prompt has.
  void set_prompt_tokens(int64_t count) { prompt_tokens_ = count; }

 private:
  OrderedJson whole(const OrderedJson& answer) override;
  OrderedJson error_of(int status, const OrderedJson& answer) const override;
  void take(const OrderedJson& event) override;
  void done() override { send_event("message_stop", OrderedJson::object()); }
  void take_delta(const OrderedJson& delta);
  /// Ends the block that is open, and begins another; without a type: none.
  void begin_block(const OrderedJson& block);
  void send_delta(const char* type, const char* field, const OrderedJson& text);

  int64_t prompt_tokens_ = 0;
  int64_t blocks_ = 0;     // that have begun
  std::string kind_ = {};  // of the one that is open; "": none
  OrderedJson reason_, stop_;
};

}  // namespace nought
