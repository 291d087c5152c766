// LiveLine: prints lines that stay and, on a terminal, one line below them that is rewritten in place.
#pragma once

#include <cstdio>
#include <string>

namespace nought {

class LiveLine {
 public:
  /// live: whether `out` is a terminal. If not, only the lines that stay are printed.
  LiveLine(std::FILE* out, bool live) : out_(out), live_(live) {}

  bool live() const { return live_; }
  /// Prints a line that stays.
  void print(const std::string& line);
  /// Replaces the line that is rewritten.
  void show(const std::string& line);
  /// Removes the line that is rewritten.
  void clear();

 private:
  std::FILE* out_;
  bool live_;
  bool open_ = false;  // true: such a line is on the terminal, without its newline
};

}  // namespace nought
