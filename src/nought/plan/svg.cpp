#include "nought/plan/svg.h"

#include <algorithm>

#include <fmt/core.h>

namespace nought {

std::string to_svg(const std::vector<Drawing>& drawings) {
  double width = 0, height = 0;
  std::string elements;
  for (const Drawing& each : drawings) {
    elements +=
        height == 0 ? each.elements : fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", height, each.elements);
    width = std::max(width, each.width), height += each.height;
  }
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
                     R"(font-family="sans-serif" fill="#222222">)"
                     "\n",
                     width, height) +
         svg_rectangle(0, 0, width, height, "#ffffff") + elements + "</svg>\n";
}

std::string svg_text(double x, double y, std::string_view anchor, int size, const std::string& text,
                     std::string_view fill) {
  const std::string colour = fill == "#222222" ? "" : fmt::format(R"( fill="{}")", fill);
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, size, colour, text);
}

std::string svg_rectangle(double x, double y, double width, double height, std::string_view fill) {
  return fmt::format(R"(<rect x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}" fill="{}"/>)"
                     "\n",
                     x, y, width, height, fill);
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.2f}" x2="{:.1f}" y2="{:.2f}" {}/>)"
                     "\n",
                     x1, y1, x2, y2, style);
}

}  // namespace nought
