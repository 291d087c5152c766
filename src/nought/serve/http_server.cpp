#include "nought/serve/http_server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

#include "nought/base/error.h"

namespace nought {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
constexpr size_t kReadBytes = 16384;
/// A client may send so much of its next requests before it has its answer.
constexpr size_t kAheadBytes = 65536;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string head_of(int status, std::string_view content_type, const HttpReply::Headers& headers, bool keeps) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", status,
                                 std::string(http::obsolete_reason(static_cast<http::status>(status))), content_type);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + (keeps ? "" : "Connection: close\r\n");
}

}  // namespace

class HttpSession;

/// What sessions share. All is used in the server's thread alone, but for `count` and `io`.
struct HttpServerState {
  HttpLimits limits;
  HttpServer::Handler handler;
  HttpServer::ErrorBody error_body;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io}, last_call{io};
  std::set<std::shared_ptr<HttpSession>> open = {};
  std::atomic<int64_t> count = 0;
  bool stopping = false;
};

/// A connection. It is its own HttpReply: one request is answered at a time.
class HttpSession final : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(tcp::socket socket, std::shared_ptr<HttpServerState> state)
      : owner_(std::move(state)),
        state_(*owner_),
        socket_(std::move(socket)),
        deadline_(state_.io),
        write_deadline_(state_.io) {}

  void start() {
    arm(deadline_, state_.limits.idle_seconds);
    read();
  }
  void refuse(int status, const std::string& message) {
    begin_answer();
    keeps_ = false;
    send(status, "application/json", state_.error_body(status, message), {});
  }
  void close() {
    if (closed_) return;
    closed_ = true;
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    write_deadline_.cancel();
    out_.clear();
    if (const auto gone = std::exchange(gone_, {}); gone && answering_) gone();
    state_.open.erase(shared_from_this());
    state_.count = std::ssize(state_.open);
    if (state_.stopping && state_.open.empty()) state_.last_call.cancel();
  }
  bool idle() const { return !answering_ && out_.empty() && !writing_; }

  // What a reply does, in the server's thread. `answer` tells a late write of an earlier answer.
  uint64_t answer() const { return answer_; }
  asio::io_context& io() { return state_.io; }
  void send(int status, std::string_view type, const std::string& body, const HttpReply::Headers& headers) {
    if (!answering_ || closed_) return;
    put(head_of(status, type, headers, keeps_) + fmt::format("Content-Length: {}\r\n\r\n", body.size()) +
        (is_head_ ? "" : body));
    end_answer();
  }
  void begin(std::string_view type, const HttpReply::Headers& headers) {
    if (!answering_ || closed_) return;
    if (!chunks_) keeps_ = false;
    put(head_of(200, type, headers, keeps_) + (chunks_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  }
  void write(const std::string& piece) {
    if (!answering_ || closed_ || piece.empty()) return;
    put(chunks_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece);
  }
  void finish() {
    if (!answering_ || closed_) return;
    if (chunks_) put("0\r\n\r\n");
    end_answer();
  }
  void on_gone(std::function<void()> gone) {
    if (closed_) return gone();
    if (answering_) gone_ = std::move(gone);
  }

 private:
  void arm(asio::steady_timer& timer, double seconds) {
    timer.expires_after(milliseconds(seconds));
    timer.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->close();
    });
  }
  void read() {
    if (reading_ || closed_ || ended_ || in_.size() >= kAheadBytes) return;
    reading_ = true;
    socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](const error_code& error, size_t size) {
      self->reading_ = false;
      if (error) return self->input_ended();
      if (!self->lingers_) self->in_.append(self->chunk_.data(), size);
      self->parse();
      self->read();
    });
  }
  void input_ended() {
    ended_ = true;
    if (answering_ || lingers_ || (out_.empty() && !writing_)) return close();
    keeps_ = false;  // what is whole is still sent
  }
  void parse() {
    while (!answering_ && !closed_ && keeps_ && !in_.empty()) {
      if (!parser_) {
        parser_.emplace();
        parser_->header_limit(static_cast<uint32_t>(state_.limits.header_bytes));
        parser_->body_limit(static_cast<uint64_t>(state_.limits.body_bytes));
        parser_->eager(true);
        continued_ = false;
        arm(deadline_, state_.limits.request_seconds);
      }
      error_code error;
      const size_t used = parser_->put(asio::buffer(in_), error);
      in_.erase(0, used);
      if (error && error != http::error::need_more) return refuse_malformed(error);
      if (parser_->is_done()) {
        handle();
      } else {
        if (parser_->is_header_done() && !std::exchange(continued_, true) && parser_->get()[http::field::expect] != "")
          put("HTTP/1.1 100 Continue\r\n\r\n");
        if (error || used == 0) return;
      }
    }
  }
  void refuse_malformed(const error_code& error) {
    if (error == http::error::body_limit)
      return refuse(413, fmt::format("the body of the request has more than {} bytes", state_.limits.body_bytes));
    if (error == http::error::header_limit)
      return refuse(431, fmt::format("the headers of the request have more than {} bytes", state_.limits.header_bytes));
    refuse(400, fmt::format("this is no HTTP request: {}", error.message()));
  }
  void begin_answer() {
    answering_ = true;
    ++answer_;
    deadline_.cancel();
  }
  void handle();
  void end_answer() {
    answering_ = false;
    gone_ = {};
    parser_.reset();
    if (state_.stopping) keeps_ = false;
    if (!keeps_) return;  // put() closes when all is sent
    arm(deadline_, state_.limits.idle_seconds);
    asio::post(state_.io, [self = shared_from_this()] {
      self->parse();
      self->read();
    });
  }
  void put(const std::string& text) {
    out_ += text;
    if (static_cast<int64_t>(out_.size()) > state_.limits.unsent_bytes && writing_) return close();
    flush();
  }
  void flush() {
    if (writing_ || closed_) return;
    if (out_.empty()) {
      if (!answering_ && (!keeps_ || state_.stopping)) linger();
      return;
    }
    writing_ = true;
    sending_ = std::exchange(out_, {});
    arm(write_deadline_, state_.limits.idle_seconds);
    asio::async_write(socket_, asio::buffer(sending_), [self = shared_from_this()](const error_code& error, size_t) {
      self->writing_ = false;
      self->write_deadline_.cancel();
      if (error) return self->close();
      self->flush();
    });
  }
  /// Ends the output, and drops what the client still sends for a moment: closing at once could lose the answer.
  void linger() {
    if (ended_) return close();
    if (std::exchange(lingers_, true)) return;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    in_.clear();
    arm(deadline_, 1.0);
    read();
  }

  std::shared_ptr<HttpServerState> owner_;
  HttpServerState& state_;
  tcp::socket socket_;
  asio::steady_timer deadline_, write_deadline_;
  std::array<char, kReadBytes> chunk_{};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string in_, out_, sending_;
  std::function<void()> gone_;
  uint64_t answer_ = 0;
  bool reading_ = false, writing_ = false, answering_ = false, closed_ = false, ended_ = false, lingers_ = false;
  bool keeps_ = true, chunks_ = true, is_head_ = false, continued_ = false;
};

namespace {

/// One answer of a session, from any thread.
class SessionReply final : public HttpReply {
 public:
  explicit SessionReply(std::shared_ptr<HttpSession> session)
      : session_(std::move(session)), answer_(session_->answer()) {}
  void send(int status, std::string_view type, std::string body, const Headers& headers) override {
    post([status, type = std::string(type), body = std::move(body), headers](HttpSession& session) {
      session.send(status, type, body, headers);
    });
  }
  void begin(std::string_view type, const Headers& headers) override {
    post([type = std::string(type), headers](HttpSession& session) { session.begin(type, headers); });
  }
  void write(std::string piece) override {
    post([piece = std::move(piece)](HttpSession& session) { session.write(piece); });
  }
  void finish() override {
    post([](HttpSession& session) { session.finish(); });
  }
  void on_gone(std::function<void()> gone) override {
    post([gone = std::move(gone)](HttpSession& session) { session.on_gone(gone); });
  }

 private:
  template <class Action>
  void post(Action action) {
    asio::post(session_->io(), [session = session_, answer = answer_, action = std::move(action)] {
      if (session->answer() == answer) action(*session);
    });
  }
  std::shared_ptr<HttpSession> session_;
  uint64_t answer_;
};

}  // namespace

void HttpSession::handle() {
  const auto& message = parser_->get();
  keeps_ = message.keep_alive();
  chunks_ = message.version() >= 11;
  is_head_ = message.method() == http::verb::head;
  const auto text = [](auto view) { return std::string(view.data(), view.size()); };
  HttpRequest request{.method = text(message.method_string()),
                      .path = text(message.target()),
                      .content_type = text(message[http::field::content_type]),
                      .authorization = text(message[http::field::authorization]),
                      .body = message.body()};
  if (const auto key = message.find("x-api-key"); request.authorization.empty() && key != message.end())
    request.authorization = "Bearer " + text(key->value());  // as Anthropic's clients send it
  request.path = request.path.substr(0, request.path.find('?'));
  begin_answer();
  const auto reply = std::make_shared<SessionReply>(shared_from_this());
  try {
    state_.handler(request, reply);
  } catch (const std::exception& error) {
    send(500, "application/json", state_.error_body(500, error.what()), {});
  }
}

namespace {

void accept(const std::shared_ptr<HttpServerState>& shared) {
  HttpServerState& state = *shared;
  state.acceptor.async_accept([&state, weak = std::weak_ptr(shared)](const error_code& error, tcp::socket socket) {
    const std::shared_ptr<HttpServerState> owner = weak.lock();
    if (!owner || state.stopping || error == asio::error::operation_aborted) return;
    if (error) {  // as when there are too many open files
      state.pause.expires_after(std::chrono::milliseconds(100));
      state.pause.async_wait([weak](const error_code&) {
        if (const auto again = weak.lock()) accept(again);
      });
      return;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto count = std::ssize(state.open);
    if (count < 2 * state.limits.connections) {
      const auto session = std::make_shared<HttpSession>(std::move(socket), owner);
      state.open.insert(session);
      state.count = count + 1;
      if (count < state.limits.connections) {
        session->start();
      } else {
        session->refuse(503,
                        fmt::format("there are {} connections, as many as the server takes", state.limits.connections));
      }
    }
    accept(owner);
  });
}

}  // namespace

HttpServer::HttpServer(const std::string& host, uint16_t port, const HttpLimits& limits, Handler handler,
                       ErrorBody error_body)
    : state_(new HttpServerState{limits, std::move(handler), std::move(error_body)}) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  require<ConfigError>(!error, "--host {}: expected an address such as 127.0.0.1, ::1 or 0.0.0.0", host);
  const tcp::endpoint endpoint(address, port);
  tcp::acceptor& acceptor = state_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  require<ConfigError>(!error, "cannot listen on {}:{}: {}{}", host, port, error.message(),
                       error == asio::error::address_in_use ? "; --port names another port, 0 any that is free" : "");
  accept(state_);
}

HttpServer::~HttpServer() {
  error_code ignored;
  state_->acceptor.close(ignored);
  for (const auto& session : std::set(state_->open)) session->close();
  state_->io.restart();  // what waits holds sessions, and they hold the state
  state_->io.poll();
}

uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }
int64_t HttpServer::connections() const { return state_->count; }
void HttpServer::run() { state_->io.run(); }

void HttpServer::stop(double seconds) {
  asio::post(state_->io, [&state = *state_, seconds] {
    if (std::exchange(state.stopping, true)) return;
    error_code ignored;
    state.acceptor.close(ignored);
    state.pause.cancel();
    for (const auto& session : std::set(state.open))
      if (session->idle()) session->close();
    state.last_call.expires_after(milliseconds(seconds));
    state.last_call.async_wait([&state](const error_code&) { state.io.stop(); });
    if (state.open.empty()) state.last_call.cancel();
  });
}

}  // namespace nought
