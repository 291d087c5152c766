#include "nought/serve/chat_page.h"

#include <fmt/format.h>

#include "nought/base/nonce.h"

namespace nought {

ChatPage make_chat_page() {
  const std::string nonce = random_nonce();
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
