#include "nought/comm/flight_keeper.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "nought/base/host.h"
#include "nought/base/text.h"

namespace nought {

namespace {

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

RankState state_of(const FlightHeader& header) { return state_of_process(header.pid, header.process_start); }

}  // namespace

FlightKeeper::FlightKeeper(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const int descriptor = FlightPage::make_file();
    std::shared_ptr<FlightPage> page = FlightPage::map(descriptor);
    if (!page) {
      if (descriptor >= 0) close(descriptor);
      return;
    }
    descriptors_.push_back(descriptor);
    pages_.push_back(std::move(page));
  }
}

FlightKeeper::~FlightKeeper() {
  for (const int descriptor : descriptors_) close(descriptor);
}

std::string FlightKeeper::variable() const {
  return fmt::format("{}={}:{}:{}", kFlightKeeperVariable, host_name(), getpid(), fmt::join(descriptors_, ","));
}

uint64_t FlightKeeper::progress() const {
  uint64_t sum = 0;
  for (const auto& page : pages_)
    sum += page->header().calls + page->load<FlightActivity>(FlightPage::kActivity).version;
  return sum;
}

int64_t FlightKeeper::step() const {
  int64_t latest = 0;
  for (const auto& page : pages_) latest = std::max(latest, page->load<FlightActivity>(FlightPage::kActivity).step);
  return latest;
}

int FlightKeeper::lost_rank() const {
  for (const auto& page : pages_)
    if (const FlightHeader header = page->header(); header.pid != 0 && state_of(header) >= RankState::stopped)
      return header.rank;
  return -1;
}

std::string FlightKeeper::describe(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= pages_.size()) return "";
  const FlightPage& page = *pages_[static_cast<size_t>(rank)];
  const FlightHeader header = page.header();
  if (header.pid == 0) return "";
  const auto activity = page.load<FlightActivity>(FlightPage::kActivity);
  const RankState state = state_of(header);
  const char* is = state == RankState::dead ? "is dead" : state == RankState::stopped ? "is stopped" : "runs";
  std::string text = fmt::format("rank {} (pid {}) {}, in {}", rank, header.pid, is, flight_text(activity.phase));
  if (activity.step > 0) text += fmt::format(", step {}", activity.step);
  return text;
}

StandstillWatch::Clock::duration StandstillWatch::standstill() {
  const auto now = Clock::now();
  if (const uint64_t progress = keeper_.progress(); progress != progress_) progress_ = progress, moved_ = now;
  return now - moved_;
}

int open_kept_page(int rank) {
  const char* value = std::getenv(kFlightKeeperVariable);
  if (value == nullptr) return -1;
  const std::vector<std::string> parts = split(value, ':');
  if (parts.size() != 3 || parts[0] != host_name()) return -1;
  const std::vector<std::string> descriptors = split(parts[2], ',');
  if (static_cast<size_t>(rank) >= descriptors.size()) return -1;
  const std::optional<int> pid = number_of(parts[1]), descriptor = number_of(descriptors[static_cast<size_t>(rank)]);
  return pid && descriptor ? FlightPage::open_file_of(*pid, *descriptor) : -1;
}

}  // namespace nought
