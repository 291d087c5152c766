#include "nought/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::html_test {
namespace {

using testing::HasSubstr;

TEST(Html, a_text_stays_a_text) {
  EXPECT_EQ(escape_html("</b> & \"a\" 'b'\n"), "&lt;/b&gt; &amp; &quot;a&quot; &#39;b&#39;\n");
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b\x7f", 5)), "a b  ");
  EXPECT_EQ(escape_html("\xff\xc3\xa4"), "\xEF\xBF\xBD\xC3\xA4");
}

TEST(Html, json_in_a_script_has_no_tag_and_reads_back) {
  const OrderedJson json{{"</script>", "<!-- \xe2\x80\xa8"}};
  const std::string text = script_json(json);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(OrderedJson::parse(text), json);
  for (const char c : text) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << text;
}

TEST(Html, a_table_without_rows_is_none) {
  EXPECT_EQ(to_html(HtmlTable{.rows = {{"a"}}}), "");
  const std::string html = to_html(HtmlTable{.caption = "<c>", .rows = {{"", "n"}, {"x", "1"}}});
  EXPECT_THAT(html, HasSubstr("<caption>&lt;c&gt;</caption>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\" >x</th><td class=\"number\">1</td>"));
}

}  // namespace
}  // namespace nought::html_test
