// LiveLine: prints lines that stay and, on a terminal, one line below them that is rewritten in place.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace nought {

/// How many columns the terminal has now; 0 where there is none. A user may resize it at any time.
using Columns = std::function<int()>;

class LiveLine {
 public:
  /// columns: those of the terminal that `out` is. Without a terminal only the lines that stay are printed.
  LiveLine(std::FILE* out, Columns columns) : out_(out), columns_(std::move(columns)), live_(columns_() > 0) {}

  bool live() const { return live_; }
  /// The width that lines should keep to; 0: there is no limit.
  int width() const { return live_ ? columns_() : 0; }
  /// Prints a line that stays. Where it is too long for the terminal it goes on below, after `indent` spaces.
  void print(const std::string& line, int indent = 0);
  /// Replaces the line that is rewritten. It must fit width().
  void show(const std::string& line);
  /// Removes the line that is rewritten.
  void clear();

 private:
  /// Goes to the beginning of the line that is rewritten and removes it.
  void wipe();

  std::FILE* out_;
  Columns columns_;
  bool live_;
  bool open_ = false;     // true: such a line is on the terminal, without its newline
  int open_columns_ = 0;  // and has so many columns
};

}  // namespace nought
