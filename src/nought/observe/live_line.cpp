#include "nought/observe/live_line.h"

#include <fmt/core.h>

#include "nought/base/lines.h"
#include "nought/io/files.h"

namespace nought {

void LiveLine::print(const std::string& line, int indent) {
  clear();
  fmt::print(out_, "{}\n", wrap(line, width(), indent));
  flush_printed(out_);
}

void LiveLine::show(const std::string& line) {
  if (!live_) return;
  wipe();
  fmt::print(out_, "{}", line);
  open_ = true;
  open_columns_ = columns_of(line);
  flush_printed(out_);
}

void LiveLine::clear() {
  if (open_) wipe();
  open_ = false;
}

void LiveLine::wipe() {
  // A terminal that has become narrower shows the line on several rows.
  const int width = columns_(), above = open_ && width > 0 ? (open_columns_ - 1) / width : 0;
  fmt::print(out_, "{}", above > 0 ? fmt::format("\x1b[{}A\r\x1b[J", above) : "\r\x1b[K");
}

}  // namespace nought
