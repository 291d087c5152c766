// The elements of the SVG documents that Nought draws. They use the viewer's sans-serif font and refer to no other
// file.
#pragma once

#include <string>
#include <string_view>

namespace nought {

/// The begin of a document with a white ground. "</svg>" ends it.
std::string svg_begin(double width, double height);
/// anchor: "start", "middle" or "end". The text has no character that XML reserves.
std::string svg_text(double x, double y, std::string_view anchor, int size, const std::string& text,
                     std::string_view fill = "#222222");
std::string svg_rectangle(double x, double y, double width, double height, std::string_view fill);
/// style: attributes, stroke="#dddddd".
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style);

}  // namespace nought
