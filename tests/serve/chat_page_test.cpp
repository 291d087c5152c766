#include "nought/serve/chat_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::chat_page_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ChatPage, runs_its_own_script_alone_and_asks_nobody_else) {
  const ChatPage page = make_chat_page();
  const size_t at = page.policy.find("script-src 'nonce-");
  ASSERT_NE(at, std::string::npos) << page.policy;
  const std::string nonce = page.policy.substr(at + 18, 32);
  EXPECT_THAT(page.policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page.html, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(page.html, HasSubstr("<style nonce=\"" + nonce + "\">"));
  EXPECT_TRUE(page.html.ends_with("</html>\n"));
  for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " src=", "@import",
                          "url(", "\"NONCE\"", " onclick=\"", " style=\""})
    EXPECT_THAT(page.html, Not(HasSubstr(way)));
  EXPECT_NE(make_chat_page().policy, page.policy);
}

}  // namespace
}  // namespace nought::chat_page_test
