// A reply that keeps what is sent, for tests without a network.
#pragma once

#include <string>

#include "nought/serve/http_server.h"

namespace nought::test {

struct KeptReply final : HttpReply {
  void send(int, std::string_view, std::string body, const Headers&) override { text = std::move(body); }
  void begin(std::string_view, const Headers&) override {}
  void write(std::string piece) override { text += piece; }
  void finish() override {}
  void on_gone(std::function<void()>) override {}
  std::string text;
};

}  // namespace nought::test
