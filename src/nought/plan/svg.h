// The elements of the SVG documents that Nought draws. They use the viewer's sans-serif font and refer to no other
// file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// Elements on a white ground that begins at 0, 0. Units are pixels.
struct Drawing {
  double width = 0, height = 0;
  std::string elements = {};
};
/// A complete document with the drawings one below the other.
std::string to_svg(const std::vector<Drawing>& drawings);

/// anchor: "start", "middle" or "end". The text has no character that XML reserves.
std::string svg_text(double x, double y, std::string_view anchor, int size, const std::string& text,
                     std::string_view fill = "#222222");
std::string svg_rectangle(double x, double y, double width, double height, std::string_view fill);
/// style: attributes, stroke="#dddddd".
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style);

}  // namespace nought
