// What clients of a server send: bodies of requests, and bytes that may be HTTP.
#include <string>
#include <thread>

#include "memory_file.h"
#include "targets.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nought/chat/chat_format.h"
#include "nought/serve/embeddings.h"
#include "nought/serve/generation_request.h"
#include "nought/serve/http_server.h"
#include "nought/serve/messages_api.h"
#include "nought/serve/responses_api.h"

namespace nought::fuzz {

namespace {

/// A small model whose tokens are bytes, without weights: readers need none.
class KnownModel {
 public:
  KnownModel()
      : tokenizer_(make_tokenizer("bytes")), chat_(chat_source(ChatFormat::chatml, *tokenizer_), *tokenizer_) {}
  ServedModel model() const {
    return {.name = "tiny",
            .tokenizer = *tokenizer_,
            .chat = &chat_,
            .tool_form = ToolForm::hermes,
            .vocab_size = tokenizer_->vocab_size(),
            .hidden_size = 32,
            .max_context = 4096};
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate chat_;
};

/// A request that is accepted asks for answers that there is room for.
void hold(const GenerationRequest& request, const ServedModel& model) {
  if (request.choices < 1 || request.prompts.empty()) give_up("api_request", "nothing is asked for");
  for (const std::vector<int32_t>& prompt : request.prompts)
    for (const int32_t id : prompt)
      if (id < 0 || id >= model.vocab_size) give_up("api_request", "a token that is none");
}

/// A server that says how long the body of each request is.
class LoopbackServer {
 public:
  LoopbackServer()
      : server_(
            "127.0.0.1", 0, {.request_seconds = 5, .idle_seconds = 5},
            [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
              reply->send(200, "text/plain", std::to_string(request.body.size()));
            },
            [](int, const std::string& message) { return message; }),
        thread_([this] { server_.run(); }) {}
  ~LoopbackServer() {
    server_.stop(0);
    thread_.join();
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  /// All that comes back for these bytes and the end of the stream.
  std::string answer_to(std::span<const std::byte> bytes) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      give_up("connect", std::strerror(errno));
    // The server may close before it has read all.
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    ::shutdown(socket, SHUT_WR);
    std::string answer;
    char piece[4096];
    for (;;) {
      const ssize_t count = ::recv(socket, piece, sizeof piece, 0);
      if (count < 0 && errno == EAGAIN) give_up("http_bytes", "the server neither answers nor closes");
      if (count <= 0) break;
      answer.append(piece, static_cast<size_t>(count));
    }
    ::close(socket);
    return answer;
  }

 private:
  HttpServer server_;
  std::thread thread_;
};

}  // namespace

void read_api_request(std::span<const std::byte> bytes) {
  static const KnownModel known;
  const ServedModel model = known.model();
  const std::string_view body = text_of(bytes);
  accept_or_refuse([&] { hold(read_completion(body, model, 1), model); });
  accept_or_refuse([&] { hold(read_chat_completion(body, model, 1), model); });
  accept_or_refuse([&] { read_embedding_request(body, model); });
  const auto chat_of = [&](const auto& translate) {
    accept_or_refuse([&] { hold(read_chat_completion(dump(translate()), model, 1), model); });
  };
  chat_of([&] { return chat_of_response(body); });
  for (const bool counts : {false, true}) chat_of([&] { return chat_of_messages(body, counts); });
}

void read_http_bytes(std::span<const std::byte> bytes) {
  static const LoopbackServer server;
  const std::string answer = server.answer_to(bytes);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ") && !answer.starts_with("HTTP/1.0 "))
    give_up("http_bytes", "an answer that is no HTTP");
}

}  // namespace nought::fuzz
