#include "nought/observe/live_line.h"

#include <fmt/core.h>

namespace nought {

namespace {

constexpr const char* kWipe = "\r\x1b[K";

}  // namespace

void LiveLine::print(const std::string& line) {
  clear();
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void LiveLine::show(const std::string& line) {
  if (!live_) return;
  fmt::print(out_, "{}{}", kWipe, line);
  open_ = true;
  std::fflush(out_);
}

void LiveLine::clear() {
  if (open_) fmt::print(out_, "{}", kWipe);
  open_ = false;
}

}  // namespace nought
