#include "nought/comm/flight_files.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/open_file.h"

namespace nought {
namespace {

namespace fs = std::filesystem;

// What the handler reads. It is set while no handler is installed.
std::atomic<FlightPage*> page_of_process{nullptr};
std::array<char, 4096> folder_of_process{}, file_of_process{}, word_of_process{};
std::array<struct sigaction, NSIG> handlers_before{};

/// Calls only what a signal handler may call. False if not everything was written.
bool write_bytes(int file, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(file, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<size_t>(written);
  }
  return true;
}

/// Calls only what a signal handler may call. False if the page was not written whole.
bool write_page(const FlightPage& page, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  FlightHeader header = page.header();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.written = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  bool whole = write_bytes(file, reinterpret_cast<const char*>(&header), sizeof header);
  // Word by word, as other threads may write them.
  std::array<uint64_t, 256> some;
  for (size_t at = FlightPage::kActivity; whole && at < FlightPage::kWords;) {
    size_t count = 0;
    while (count < some.size() && at < FlightPage::kWords) some[count++] = page.word(at++).load();
    whole = write_bytes(file, reinterpret_cast<const char*>(some.data()), count * sizeof some[0]);
  }
  return close(file) == 0 && whole;
}

/// Runs in a signal handler. After a crash whoever handled it before does: the instruction that failed is tried again,
/// or, where the signal was sent, it is sent again.
void take_signal(int signal, siginfo_t* info, void*) {
  const int error = errno;
  if (signal != SIGUSR2) sigaction(signal, &handlers_before[static_cast<size_t>(signal)], nullptr);
  const FlightPage* page = page_of_process;
  if (page != nullptr) {
    mkdir(folder_of_process.data(), 0777);
    if (write_page(*page, file_of_process.data()))
      write_bytes(STDERR_FILENO, word_of_process.data(), std::strlen(word_of_process.data()));
  }
  if (signal != SIGUSR2 && info->si_code <= 0) raise(signal);
  errno = error;
}

}  // namespace

fs::path flight_file(const fs::path& folder, int rank) { return folder / fmt::format("rank-{}.flight", rank); }

bool write_flight_file(const FlightPage& page, const fs::path& folder) {
  const std::vector<uint64_t> words = flight_words(page);
  // The rank itself and another one of its host may write the same file at once.
  static std::atomic<int> files = 0;
  const fs::path path = flight_file(folder, page.header().rank);
  const fs::path partial = fs::path(path) += fmt::format(".{}-{}.partial", getpid(), ++files);
  std::error_code error;
  fs::create_directories(folder, error);
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(words.data()),
               static_cast<std::streamsize>(words.size() * sizeof words[0]));
    file.close();
    if (!file) {
      fs::remove(partial, error);
      return false;
    }
  }
  fs::rename(partial, path, error);
  return !error;
}

FlightSnapshot read_flight_file(const fs::path& file) {
  std::error_code error;
  require<IoError>(fs::is_regular_file(file, error), "{} is no file; expected one of the flight recorder, such as {}",
                   file.string(), flight_file("out/flight-recorder", 0).string());
  const bool fits = fs::file_size(file, error) == FlightPage::kBytes;  // what is larger is not read at all
  const std::string bytes = fits ? bytes_if_there(file).value_or("") : "";
  std::vector<uint64_t> words(bytes.size() == FlightPage::kBytes ? FlightPage::kWords : 0);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof words[0]);
  return flight_snapshot(words, file.string());
}

FlightSignals::FlightSignals(const FlightRecorder& recorder, const fs::path& folder) : page_(recorder.page()) {
  const auto set = [](std::array<char, 4096>& text, const std::string& value) {
    require<ConfigError>(value.size() < text.size(), "the path {} is too long", value);
    std::copy(value.begin(), value.end(), text.begin());
    text[value.size()] = '\0';
  };
  const std::string absolute = fs::absolute(folder).string(), file = flight_file(absolute, recorder.rank()).string();
  set(folder_of_process, absolute);
  set(file_of_process, file);
  set(word_of_process,
      fmt::format("nought: rank {} wrote {}\n", recorder.rank(), flight_file(folder, recorder.rank()).string()));
  page_of_process = page_.get();
  struct sigaction action {};
  action.sa_sigaction = take_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction& before = handlers_before[static_cast<size_t>(signal)];
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

FlightSignals::~FlightSignals() {
  for (const int signal : kSignals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_sigaction == take_signal) sigaction(signal, &handlers_before[static_cast<size_t>(signal)], nullptr);
  }
  page_of_process = nullptr;
}

}  // namespace nought
