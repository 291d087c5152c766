// ChatPage: the page at "/", a chat in one file that is part of the program.
#pragma once

#include <string>
#include <string_view>

namespace nought {

/// page/index.html, where "NONCE" stands for the nonce of its style and its script.
std::string_view chat_page_source();

struct ChatPage {
  std::string html;
  std::string policy;  // its Content-Security-Policy: nothing runs but its own script, and nothing leaves for elsewhere
};
/// The page with a nonce that no other has.
ChatPage make_chat_page();

}  // namespace nought
