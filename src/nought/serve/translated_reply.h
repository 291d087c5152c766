// TranslatedReply: takes the answer to a chat as OpenAI's API has it, and gives another API's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/serve/answer.h"
#include "nought/serve/http_server.h"

namespace nought {

class TranslatedReply : public HttpReply {
 public:
  explicit TranslatedReply(std::shared_ptr<HttpReply> reply) : reply_(std::move(reply)) {}
  void send(int status, std::string_view content_type, std::string body, const Headers& headers) final {
    const OrderedJson answer = OrderedJson::parse(body, nullptr, /*allow_exceptions=*/false);
    if (status >= 300)
      body = dump(error_of(status, answer));
    else if (answer.contains("choices"))
      body = dump(whole(answer));
    reply_->send(status, content_type, std::move(body), headers);
  }
  void begin(std::string_view content_type, const Headers& headers) final { reply_->begin(content_type, headers); }
  void write(std::string piece) final {
    constexpr std::string_view kData = "data: ";
    const OrderedJson event = piece.starts_with(kData)
                                  ? OrderedJson::parse(piece.substr(kData.size()), nullptr, /*allow_exceptions=*/false)
                                  : OrderedJson(OrderedJson::value_t::discarded);
    if (event.is_object())
      take(event);
    else if (piece.starts_with("data: [DONE]"))
      done();
    else
      reply_->write(std::move(piece));
  }
  void finish() final { reply_->finish(); }
  void on_gone(std::function<void()> gone) final { reply_->on_gone(std::move(gone)); }

 protected:
  /// The form of a whole answer, and of an error.
  virtual OrderedJson whole(const OrderedJson& answer) = 0;
  virtual OrderedJson error_of(int status, const OrderedJson& answer) const = 0;
  /// Takes an event of a stream, and its end.
  virtual void take(const OrderedJson& event) = 0;
  virtual void done() = 0;

  void send_event(const std::string& type, const OrderedJson& fields) {
    OrderedJson event{{"type", type}};
    event.update(fields);
    reply_->write(fmt::format("event: {}\ndata: {}\n\n", type, dump(event)));
  }

 private:
  std::shared_ptr<HttpReply> reply_;
};

}  // namespace nought
