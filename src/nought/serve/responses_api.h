// OpenAI's /v1/responses, in terms of its chats: text and calls of functions.
#pragma once

#include <string>
#include <string_view>

#include "nought/serve/translated_reply.h"

namespace nought {

/// The body of /v1/chat/completions that asks for the same. ApiError for each field that is wrong or not supported.
OrderedJson chat_of_response(std::string_view body);

/// Takes the answer to a chat, and gives `reply` a response.
class ResponseReply final : public TranslatedReply {
 public:
  using TranslatedReply::TranslatedReply;
  /// Before the answer begins: the request, parts of which stand in the response.
  void set_request(OrderedJson body) { request_ = std::move(body); }

 private:
  OrderedJson whole(const OrderedJson& answer) override;
  OrderedJson error_of(int status, const OrderedJson& answer) const override;
  void take(const OrderedJson& event) override;
  void done() override {}
  void take_delta(const OrderedJson& delta);
  void begin_item(OrderedJson item);
  void end_item();
  void add(const char* event, const std::string& text);
  void send_numbered(const std::string& type, OrderedJson fields);
  /// The response with the output so far.
  OrderedJson response(const OrderedJson& answer, const OrderedJson& finish) const;

  OrderedJson request_;
  OrderedJson output_ = OrderedJson::array();
  OrderedJson finish_;
  std::string text_;  // of the item that is open
  bool open_ = false;
  int64_t number_ = 0;  // of the next event
};

}  // namespace nought
