// LineReader: reads lines from the user. On a terminal they can be edited, and the arrow up brings back earlier ones
// (libedit). Elsewhere they are read as they are.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace nought {

class LineReader {
 public:
  /// edit: whether `in` and `out` are a terminal. prompt: what a terminal shows before each line.
  LineReader(std::FILE* in, std::FILE* out, bool edit, std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end; nothing at the end of the input.
  std::optional<std::string> next();

 private:
  struct Editor;

  std::FILE* in_;
  std::unique_ptr<Editor> editor_;  // null: lines are read as they are
};

}  // namespace nought
