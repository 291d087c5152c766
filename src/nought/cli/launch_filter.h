// Takes mpirun's own banners out of what the ranks write to stderr, and keeps them as the reason of a failure.
//
// A banner is a block between two lines of dashes, which mpirun writes in one piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nought {

class MpirunFilter {
 public:
  /// What of the next bytes is to be passed on now. Half a line (a progress line) is passed on at once.
  std::string feed(std::string_view bytes);
  /// What is still held when the stream has ended.
  std::string finish();

  /// A rank has printed its own error.
  bool saw_error() const { return saw_error_; }
  /// The first paragraph of the most telling banner, on one line; "" if there was none.
  std::string reason() const;

 private:
  void end_line(std::string& out);

  std::string line_;   // the current line
  size_t passed_ = 0;  // how much of it was passed on already
  bool in_banner_ = false;
  std::string banner_;
  std::vector<std::string> banners_;
  bool saw_error_ = false;
};

}  // namespace nought
