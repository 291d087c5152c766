// HttpClient: requests to one HTTP server, many at once in one thread, whose answers are heard as they come.
//
// Each request has a connection of its own. Non-goals: TLS, which a proxy does; redirects.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nought {

struct HttpAddress {
  std::string host;
  uint16_t port = 80;
  std::string path = {};  // without a / at its end
};

/// "http://HOST[:PORT][/PATH]"; an IPv6 address stands in [ ]. ConfigError for anything else, https too.
HttpAddress parse_http_address(const std::string& url);

struct HttpCall {
  std::string method = "GET", target = {}, body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// Bytes of the answer's body, as they come.
  std::function<void(int status, std::string_view piece)> on_piece = {};
  /// Once, at last. error: in one line why the answer is not whole, "" if it is; status 0: none has come.
  std::function<void(int status, const std::string& error)> on_end = {};
};

struct HttpClientState;

class HttpClient {
 public:
  /// timeout_seconds: of a request, from its beginning to the end of its answer. ConfigError if the host is not known.
  HttpClient(const HttpAddress& address, double timeout_seconds);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// What is sent or set before run(), or by what run() calls, is done within run().
  void send(HttpCall call);
  void after(double seconds, std::function<void()> then);
  /// Returns when nothing is left to do.
  void run();

 private:
  std::unique_ptr<HttpClientState> state_;
};

}  // namespace nought
