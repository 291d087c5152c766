// LiveLine: lines that stay, and one below them that is rewritten in place on a terminal.
#pragma once

#include <cstdio>
#include <string>

namespace nought {

class LiveLine {
 public:
  /// live: `out` is a terminal; else only lines that stay are printed.
  LiveLine(std::FILE* out, bool live) : out_(out), live_(live) {}

  bool live() const { return live_; }
  /// A line that stays.
  void print(const std::string& line);
  /// A line in place of the last one shown.
  void show(const std::string& line);
  /// Removes the line that is shown.
  void clear();

 private:
  std::FILE* out_;
  bool live_;
  bool open_ = false;  // a line is shown, without its newline
};

}  // namespace nought
