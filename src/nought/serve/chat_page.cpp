#include "nought/serve/chat_page.h"

#include <random>

#include <fmt/format.h>

namespace nought {

ChatPage make_chat_page() {
  std::random_device random;
  const std::string nonce = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  constexpr std::string_view kPlace = "nonce=\"NONCE\"";
  ChatPage page{
      .html = std::string(chat_page_source()),
      .policy = fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src "
                            "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                            nonce)};
  for (size_t at = page.html.find(kPlace); at != std::string::npos; at = page.html.find(kPlace, at))
    page.html.replace(at, kPlace.size(), fmt::format("nonce=\"{}\"", nonce));
  return page;
}

}  // namespace nought
