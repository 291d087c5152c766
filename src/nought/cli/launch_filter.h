// MpirunFilter: removes what mpirun itself says from what the ranks write to stderr, and keeps its banners to explain a
// failure.
//
// A banner is the text between two lines of dashes. mpirun writes each banner at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nought {

class MpirunFilter {
 public:
  /// Takes the next bytes of stderr. Returns those that are to be printed now. An unfinished line, such as a progress
  /// line, is not held back.
  std::string feed(std::string_view bytes);
  /// The bytes that are still held when the stream has ended.
  std::string finish();

  /// True if a rank has printed its own error.
  bool saw_error() const { return saw_error_; }
  /// True if the ranks have said that they heed a signal (kStopWord, kDrainWord). Behind an error it is mpirun's
  /// signal, and dropped.
  bool saw_stop() const { return saw_stop_; }
  /// The first paragraph of the most telling banner, on one line; "" if there was none.
  std::string reason() const;
  /// Whether mpirun could not start its daemons on all hosts, or lost one of them.
  bool blames_hosts() const;

 private:
  void end_line(std::string& out);

  std::string line_;   // the current line
  size_t passed_ = 0;  // bytes of it that feed() has returned already
  bool in_banner_ = false;
  std::string banner_;
  std::vector<std::string> banners_;
  bool saw_error_ = false, saw_stop_ = false;
};

}  // namespace nought
