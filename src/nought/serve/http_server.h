// HttpServer: HTTP/1.1 on a socket, for many connections in one thread.
//
// Goals: a client that is slow, silent or gone costs a bounded amount of memory and holds up no other; whether a client
// is still there is known while its answer is computed. Non-goals: TLS, which a proxy does; HTTP/2; files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nought {

struct HttpRequest {
  std::string method, path;                       // the path without what follows '?'
  std::string content_type, authorization, body;  // authorization: also "Bearer " and the x-api-key
};

struct HttpLimits {
  int64_t body_bytes = int64_t{16} << 20;
  int64_t header_bytes = int64_t{16} << 10;
  int64_t unsent_bytes = int64_t{4} << 20;  // of an answer that its client does not read: the connection ends
  int64_t connections = 1024;
  double request_seconds = 30;  // from the first byte of a request to its last
  double idle_seconds = 75;     // without a request, or without taking a byte of an answer
};

/// Where an answer goes. Thread safe. What is written after the client has gone is dropped.
class HttpReply {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  virtual ~HttpReply() = default;
  /// The whole answer.
  virtual void send(int status, std::string_view content_type, std::string body, const Headers& headers = {}) = 0;
  /// Or an answer of status 200 in pieces.
  virtual void begin(std::string_view content_type, const Headers& headers = {}) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;
  /// Calls this in the server's thread if the client goes before the answer is whole; at once if it has gone. A client
  /// that closes its half of the connection counts as gone.
  virtual void on_gone(std::function<void()> gone) = 0;
};

struct HttpServerState;

class HttpServer {
 public:
  /// Called in the server's thread; what it throws is an answer of 500.
  using Handler = std::function<void(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply)>;
  /// The body of an answer to what is no request that a handler could read: too long, malformed, too late.
  using ErrorBody = std::function<std::string(int status, const std::string& message)>;

  /// Listens at once; port 0: any that is free. ConfigError in one line if that is not possible.
  HttpServer(const std::string& host, uint16_t port, const HttpLimits& limits, Handler handler, ErrorBody error_body);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  /// Serves in this thread until stop().
  void run();
  /// Takes no more connections, lets answers end within so many seconds, and ends run(). Thread safe.
  void stop(double seconds);
  /// How many connections there are. Thread safe.
  int64_t connections() const;

 private:
  std::shared_ptr<HttpServerState> state_;
};

}  // namespace nought
