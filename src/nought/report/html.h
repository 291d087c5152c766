// Pieces of HTML in which texts stay texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json_fwd.h"

namespace nought {

/// The text for element content and for attributes in double quotes. Bytes that are no UTF-8 become U+FFFD, control
/// characters but for line ends and tabs become spaces.
std::string escape_html(std::string_view text);

/// JSON for a <script type="application/json">: it has no '<', so no text in it ends the element.
std::string script_json(const OrderedJson& json);

/// <h2 id="ID">TITLE</h2>.
std::string html_heading(std::string_view id, std::string_view title);

/// Cells are HTML already. The first row is the head; columns from `numbers` on are aligned as numbers.
struct HtmlTable {
  std::string caption = {};  // a text
  std::vector<std::vector<std::string>> rows = {};
  size_t numbers = 1;  // SIZE_MAX: none is
};
/// "" if there is no row but the head.
std::string to_html(const HtmlTable& table);

}  // namespace nought
