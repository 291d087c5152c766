#include "nought/report/html.h"

#include <fmt/format.h>

#include "nought/base/json.h"

namespace nought {

namespace {

/// The text as JSON writes it, which replaces what is no UTF-8, and back.
std::string valid_utf8(std::string_view text) {
  const std::string quoted = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : valid_utf8(text)) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '\n':
      case '\t':
        escaped += c;
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  return escaped;
}

std::string script_json(const OrderedJson& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace))
    if (c == '<')
      text += "\\u003c";  // '<' stands in strings alone
    else
      text += c;
  return text;
}

std::string html_heading(std::string_view id, std::string_view title) {
  return fmt::format("<h2 id=\"{}\">{}</h2>\n", id, escape_html(title));
}

std::string to_html(const HtmlTable& table) {
  if (table.rows.size() < 2) return "";
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!table.caption.empty()) html += fmt::format("<caption>{}</caption>\n", escape_html(table.caption));
  for (size_t row = 0; row < table.rows.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < table.rows[row].size(); ++i) {
      const char* cell = row == 0 || i == 0 ? "th" : "td";
      html += fmt::format("<{0} {1}{2}>{3}</{0}>", cell,
                          cell[1] == 'd' ? ""
                          : row == 0     ? "scope=\"col\" "
                                         : "scope=\"row\" ",
                          i >= table.numbers ? "class=\"number\"" : "", table.rows[row][i]);
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace nought
