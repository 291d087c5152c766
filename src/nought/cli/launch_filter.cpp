#include "nought/cli/launch_filter.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/cli/stop_signals.h"

namespace nought {

namespace {

constexpr size_t kRulerLength = 70;

bool only_dashes(std::string_view text) { return text.find_first_not_of('-') == std::string_view::npos; }

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

/// What mpirun says after each failure, whatever its cause.
bool says_nothing(std::string_view banner) {
  return starts_with(banner, "Primary job") || starts_with(banner, "An internal error") ||
         starts_with(banner, "MPI_ABORT") || starts_with(banner, "mpirun detected that one or more processes");
}

/// A line by which mpirun's daemons log that they lost each other, as they may while a job ends:
/// "[host:123] [[25588,0],0] ORTE_ERROR_LOG: ...".
bool is_daemon_log(std::string_view line) {
  return starts_with(line, "[") && line.find("] ORTE_ERROR_LOG: ") != std::string_view::npos;
}

/// What mpirun writes when it passes a signal on to its ranks, before the signal's number.
constexpr std::string_view kForwarding = "mpirun: Forwarding signal ";

/// Whether the line is that, or may become it.
bool may_be_forwarding(std::string_view line) {
  return starts_with(line, kForwarding) || starts_with(kForwarding, line);
}

/// Whether the line is what ranks say when a signal asks them to stop, or may become it.
bool may_be_stop_word(std::string_view line) { return starts_with(kStopWord, line); }

/// The first paragraph without its line breaks and indents.
std::string first_paragraph(const std::string& banner) {
  std::string text;
  for (const std::string& line : split(banner, '\n')) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) {
      if (text.empty()) continue;
      break;
    }
    if (!text.empty()) text += ' ';
    text.append(line, begin);
  }
  return text;
}

/// What the banner says of a host whose daemon mpirun has lost; "" for any other banner.
std::string lost_host(const std::string& banner) {
  constexpr std::string_view kLost = "ORTE has lost communication with a remote daemon",
                             kRemote = "Remote daemon:", kNode = " on node ";
  const size_t at = banner.find(kRemote), node = at == std::string::npos ? at : banner.find(kNode, at);
  if (!starts_with(first_paragraph(banner), kLost) || node == std::string::npos) return "";
  const size_t begin = node + kNode.size();
  return fmt::format("host {} is lost: it went down, or the network to it did",
                     banner.substr(begin, banner.find('\n', begin) - begin));
}

}  // namespace

void MpirunFilter::end_line(std::string& out) {
  const bool ruler = line_.size() >= kRulerLength && only_dashes(line_);
  if (ruler && in_banner_) banners_.push_back(std::move(banner_)), banner_.clear();
  if (ruler) {
    in_banner_ = !in_banner_;
  } else if (starts_with(line_, kForwarding)) {
    // The launcher asked for it.
  } else if (saw_error_ && passed_ == 0 && line_ + '\n' == kStopWord) {
    // It was mpirun that asked, because a rank has failed.
  } else if (is_daemon_log(line_)) {
    banners_.push_back(line_);  // told only if nothing else explains the end
  } else if (in_banner_ && !starts_with(line_, "nought: ")) {
    banner_ += line_ + '\n';
  } else {
    saw_error_ = saw_error_ || starts_with(line_, "nought: error:");
    saw_stop_ = saw_stop_ || line_ + '\n' == kStopWord || line_ + '\n' == kDrainWord;
    out += line_.substr(passed_) + '\n';
  }
  line_.clear();
  passed_ = 0;
}

std::string MpirunFilter::feed(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    if (c == '\n') {
      end_line(out);
      continue;
    }
    line_ += c;
    // What may become a ruler or a line of mpirun waits for its end.
    if (in_banner_ || (passed_ == 0 && (only_dashes(line_) || line_[0] == '[' || may_be_forwarding(line_) ||
                                        (saw_error_ && may_be_stop_word(line_)))))
      continue;
    out += line_.substr(passed_);
    passed_ = line_.size();
  }
  return out;
}

std::string MpirunFilter::finish() {
  std::string rest = banner_ + line_.substr(passed_);
  banner_.clear();
  line_.clear();
  passed_ = 0;
  return rest;
}

bool MpirunFilter::blames_hosts() const {
  return std::any_of(banners_.begin(), banners_.end(), [](const std::string& banner) {
    return is_daemon_log(banner) || starts_with(first_paragraph(banner), "ORTE was unable to reliably start");
  });
}

std::string MpirunFilter::reason() const {
  for (const std::string& banner : banners_)
    if (std::string host = lost_host(banner); !host.empty()) return host;
  const auto telling = std::find_if(banners_.begin(), banners_.end(), [](const auto& b) { return !says_nothing(b); });
  if (telling == banners_.end()) return "";
  std::string text = first_paragraph(*telling);
  // mpirun forgets the number of a process that has ended before it says so.
  constexpr std::string_view kForgotten = " with PID 0";
  if (const size_t at = text.find(kForgotten); at != std::string::npos) text.erase(at, kForgotten.size());
  return text;
}

}  // namespace nought
