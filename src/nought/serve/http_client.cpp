#include "nought/serve/http_client.h"

#include <array>
#include <charconv>
#include <chrono>
#include <optional>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <fmt/format.h>

#include "nought/base/error.h"

namespace nought {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
std::chrono::microseconds microseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}
}  // namespace

struct HttpClientState {
  HttpAddress address;
  double timeout_seconds;
  asio::io_context io{1};
  tcp::resolver::results_type endpoints = {};
};

/// A request and its answer.
class HttpExchange final : public std::enable_shared_from_this<HttpExchange> {
 public:
  HttpExchange(HttpClientState& state, HttpCall call)
      : state_(state), call_(std::move(call)), stream_(state.io), request_(http::verb::get, call_.target, 11) {
    request_.method_string(call_.method);
    request_.set(http::field::host, fmt::format("{}:{}", state.address.host, state.address.port));
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : call_.headers) request_.set(name, value);
    request_.body() = std::move(call_.body);
    if (call_.method != "GET") request_.prepare_payload();
    parser_.body_limit(boost::none);
  }
  void start() {
    stream_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(microseconds(state_.timeout_seconds)));
    stream_.async_connect(state_.endpoints, [self = shared_from_this()](const error_code& error, const tcp::endpoint&) {
      if (error) return self->end("connecting: " + error.message());
      error_code ignored;
      self->stream_.socket().set_option(tcp::no_delay(true), ignored);
      self->write();
    });
  }

 private:
  void write() {
    http::async_write(stream_, request_, [self = shared_from_this()](const error_code& error, size_t) {
      if (error) return self->end("sending the request: " + error.message());
      http::async_read_header(self->stream_, self->buffer_, self->parser_, [self](const error_code& failed, size_t) {
        if (failed) return self->end("waiting for an answer: " + failed.message());
        self->status_ = static_cast<int>(self->parser_.get().result_int());
        self->read();
      });
    });
  }
  void read() {
    if (parser_.is_done()) return end("");
    parser_.get().body().data = piece_.data();
    parser_.get().body().size = piece_.size();
    http::async_read_some(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, size_t) {
      if (error == http::error::need_buffer) error = {};
      const size_t size = self->piece_.size() - self->parser_.get().body().size;
      if (size > 0 && self->call_.on_piece) self->call_.on_piece(self->status_, {self->piece_.data(), size});
      if (error) return self->end("within the answer: " + error.message());
      self->read();
    });
  }
  void end(const std::string& error) {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    if (const auto heard = std::exchange(call_.on_end, {})) heard(status_, error);
  }

  HttpClientState& state_;
  HttpCall call_;
  beast::tcp_stream stream_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  std::array<char, 16384> piece_;
  int status_ = 0;
};

HttpAddress parse_http_address(const std::string& url) {
  constexpr std::string_view kBegin = "http://";
  require<ConfigError>(!url.starts_with("https://"),
                       "{}: TLS is not supported: name the address of a proxy or server "
                       "that speaks http",
                       url);
  require<ConfigError>(url.starts_with(kBegin), "{}: expected http://HOST[:PORT][/PATH]", url);
  HttpAddress address;
  std::string_view rest = std::string_view(url).substr(kBegin.size());
  std::string_view place = rest.substr(0, rest.find('/'));
  address.path = rest.substr(place.size());
  while (address.path.ends_with('/')) address.path.pop_back();
  const bool is_ipv6 = place.starts_with('[') && place.find(']') != std::string_view::npos;
  const size_t end = is_ipv6 ? place.find(']') + 1 : std::min(place.find(':'), place.size());
  address.host = is_ipv6 ? place.substr(1, end - 2) : place.substr(0, end);
  place.remove_prefix(end);
  bool is_good = !address.host.empty();
  if (!place.empty()) {
    const auto [stop, error] = std::from_chars(place.data() + 1, place.data() + place.size(), address.port);
    is_good = is_good && place[0] == ':' && error == std::errc() && stop == place.data() + place.size();
  }
  require<ConfigError>(is_good, "{}: expected http://HOST[:PORT][/PATH]", url);
  return address;
}

HttpClient::HttpClient(const HttpAddress& address, double timeout_seconds)
    : state_(new HttpClientState{.address = address, .timeout_seconds = timeout_seconds}) {
  error_code error;
  state_->endpoints = tcp::resolver(state_->io).resolve(address.host, std::to_string(address.port), error);
  require<ConfigError>(!error, "the host {} is not known: {}", address.host, error.message());
}

HttpClient::~HttpClient() = default;

void HttpClient::send(HttpCall call) { std::make_shared<HttpExchange>(*state_, std::move(call))->start(); }

void HttpClient::after(double seconds, std::function<void()> then) {
  const auto timer = std::make_shared<asio::steady_timer>(state_->io, microseconds(std::max(seconds, 0.0)));
  timer->async_wait([timer, then = std::move(then)](const error_code& error) {
    if (!error) then();
  });
}

void HttpClient::run() {
  state_->io.restart();
  state_->io.run();
}

}  // namespace nought
