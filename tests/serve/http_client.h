// Client: bytes to a server on loopback, and what it answers, with bounded waits.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nought/serve/http_server.h"

namespace nought::test {

class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(fd_); }

  void send(const std::string& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// Reads until `text` has come, or the server has closed: all that came since the last call.
  std::string read_to(const std::string& text) {
    while (in_.find(text) == std::string::npos && receive()) continue;
    const size_t found = in_.find(text), end = found == std::string::npos ? in_.size() : found + text.size();
    const std::string part = in_.substr(0, end);
    in_.erase(0, end);
    return part;
  }
  std::string read_bytes(size_t count) {
    while (in_.size() < count && receive()) continue;
    const std::string part = in_.substr(0, count);
    in_.erase(0, part.size());
    return part;
  }
  /// Reads until the server has closed.
  std::string read_all() {
    while (receive()) continue;
    return std::exchange(in_, {});
  }
  void close_half() { shutdown(fd_, SHUT_WR); }
  /// Closes with a reset.
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(std::exchange(fd_, socket(AF_INET, SOCK_STREAM, 0)));
  }

 private:
  bool receive() {
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    if (count > 0) in_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  int fd_;
  std::string in_;
};

/// A server in a thread of its own.
class Serving {
 public:
  Serving(HttpServer::Handler handler, const HttpLimits& limits = {})
      : server("127.0.0.1", 0, limits, std::move(handler), [](int, const std::string& message) { return message; }),
        thread_([this] { server.run(); }) {}
  ~Serving() {
    server.stop(0.2);
    thread_.join();
  }
  uint16_t port() const { return server.port(); }
  HttpServer server;

 private:
  std::thread thread_;
};

inline std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// Waits, for at most ten seconds, until something holds.
template <class Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace nought::test
