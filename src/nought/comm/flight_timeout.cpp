#include "nought/comm/flight_timeout.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <unistd.h>

#include "nought/comm/flight_report.h"

namespace nought {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kNap{50};
// A rank that does not tell waits so long for the end of the job.
constexpr std::chrono::seconds kHold{4};
// What other hosts get to write the files of their ranks, and how often they look for a request.
constexpr milliseconds kPatience{2500}, kWatch{500};

using Pages = std::vector<std::shared_ptr<FlightPage>>;

fs::path request_in(const fs::path& folder) { return folder / "request"; }

/// The page that all ranks in reach of each other agree on.
const FlightPage& first_page(const FlightRecorder& recorder) {
  const Pages& peers = recorder.peers();
  const auto first = std::find_if(peers.begin(), peers.end(), [](const auto& page) { return page != nullptr; });
  return first == peers.end() ? *recorder.page() : **first;
}

bool misses_ranks(const FlightRecorder& recorder) {
  const Pages& peers = recorder.peers();
  return std::find(peers.begin(), peers.end(), nullptr) != peers.end();
}

/// Whether this rank is the one that tells. If not, `reporter` is the rank that does, or -1 for one of another host.
bool claim_report(const FlightRecorder& recorder, int& reporter) {
  constexpr size_t kReporter = FlightPage::kHeader + offsetof(FlightHeader, reporter) / 8;
  uint64_t none = 0;
  if (!first_page(recorder).word(kReporter).compare_exchange_strong(none, static_cast<uint64_t>(recorder.rank()) + 1)) {
    reporter = static_cast<int>(none) - 1;
    return false;
  }
  reporter = -1;
  if (!misses_ranks(recorder) || recorder.folder().empty()) return true;
  std::error_code error;
  fs::create_directories(recorder.folder(), error);
  const int request = open(request_in(recorder.folder()).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (request >= 0) close(request);
  return request >= 0 || errno != EEXIST;
}

/// Waits for the end of the job, if its ranks are processes: ranks that are threads end together.
void hold(const FlightRecorder& recorder) {
  const Pages& peers = recorder.peers();
  const bool processes =
      std::any_of(peers.begin(), peers.end(), [](const auto& page) { return page && page->header().pid != getpid(); });
  const auto until = std::chrono::steady_clock::now() + kHold;
  while ((processes || misses_ranks(recorder)) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kNap);
}

/// Writes the files of the ranks in reach. True if all are there.
bool write_files(const FlightRecorder& recorder) {
  if (recorder.folder().empty()) return false;
  bool all = true;
  for (const auto& page : recorder.peers())
    if (page && !write_flight_file(*page, recorder.folder())) all = false;
  return all;
}

/// Waits a while for the files of ranks out of reach, and reads what has come since `begin`.
void read_files_of_others(const FlightRecorder& recorder, int64_t begin, std::vector<FlightSnapshot>& ranks) {
  if (recorder.folder().empty()) return;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (size_t rank = 0; rank < recorder.peers().size(); ++rank) {
    while (recorder.peers()[rank] == nullptr) {
      try {
        const FlightSnapshot found = read_flight_file(flight_file(recorder.folder(), static_cast<int>(rank)));
        // Clocks of hosts differ a little.
        if (found.header.written > begin - 1'000'000'000 && found.header.rank == static_cast<int>(rank)) {
          ranks.push_back(found);
          break;
        }
      } catch (const IoError&) {  // it is not there yet
      }
      if (std::chrono::steady_clock::now() > until) break;
      std::this_thread::sleep_for(kNap);
    }
  }
}

std::vector<FlightSnapshot> snapshots_in_reach(const FlightRecorder& recorder) {
  std::vector<FlightSnapshot> ranks;
  for (const auto& page : recorder.peers())
    if (page) ranks.push_back(flight_snapshot(*page));
  return ranks;
}

}  // namespace

std::string explain_timeout(const FlightRecorder& recorder) {
  int reporter = -1;
  const int64_t begin = flight_time();
  if (!claim_report(recorder, reporter)) {
    hold(recorder);
    return reporter < 0 ? "a rank of another host tells what all ranks do"
                        : fmt::format("rank {} tells what all ranks do", reporter);
  }
  std::vector<FlightSnapshot> ranks = snapshots_in_reach(recorder);
  const bool written = write_files(recorder);
  if (misses_ranks(recorder)) read_files_of_others(recorder, begin, ranks);
  const FlightReport report = flight_report(std::move(ranks));
  std::string text = report.findings.empty() ? "no rank is known to be late" : report.findings.front();
  for (const std::string& line : report.table) text += "\n  " + line;
  for (size_t i = 1; i < report.findings.size(); ++i) text += "\n  " + report.findings[i];
  if (written)
    text +=
        fmt::format("\n  the last {} calls of each rank: nought trace {}/*.flight", kFlightCalls, recorder.folder());
  return text;
}

std::string explain_mismatch(const FlightRecorder& recorder) { return describe_mismatch(snapshots_in_reach(recorder)); }

FlightWatch::FlightWatch(const FlightRecorder& recorder, fs::path folder)
    : recorder_(recorder), folder_(std::move(folder)), thread_([this] { watch(); }) {}

FlightWatch::~FlightWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void FlightWatch::watch() {
  bool answered = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kWatch, [&] { return stopping_; })) {
    if (answered || access(request_in(folder_).c_str(), F_OK) != 0) continue;
    // A rank that is stopped or dead cannot write its own file.
    for (const auto& page : recorder_.peers())
      if (page && (page == recorder_.page() || flight_snapshot(*page).header.state >= RankState::stopped))
        write_flight_file(*page, folder_);
    answered = true;
  }
}

FlightFolder::FlightFolder(Communicator& ranks, const fs::path& folder) : recorder_(ranks.recorder()) {
  if (!recorder_) return;
  std::error_code error;
  if (ranks.rank() == 0) fs::remove(request_in(folder), error);  // an earlier run left it
  ranks.barrier().wait();
  recorder_->set_folder(folder.string());
  signals_.emplace(*recorder_, folder);
  if (misses_ranks(*recorder_)) watch_.emplace(*recorder_, folder);
}

}  // namespace nought
