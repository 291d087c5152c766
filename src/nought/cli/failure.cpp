#include "nought/cli/failure.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/launch_job.h"
#include "nought/io/mapped_file.h"
#include "nought/tensor/address_space.h"

namespace nought {

namespace {

// mpirun needs about a second to end the ranks after one left without MPI_Abort.
constexpr std::chrono::milliseconds kFirstWord{1500};

constexpr std::string_view kPrefix = "nought: error: ";

/// The message with a table's lines below its first one indented.
std::string with_indent(std::string_view message) {
  std::string text;
  for (const std::string& line : split(message, '\n'))
    text += (text.empty() ? "" : line.empty() ? "\n" : "\n  ") + line;
  return text;
}

/// A line that a signal handler writes: of these calls all are allowed there.
class SignalLine {
 public:
  SignalLine& operator<<(std::string_view text) {
    const size_t count = std::min(text.size(), bytes_.size() - size_);
    std::memcpy(bytes_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  SignalLine& operator<<(uint64_t number) {
    std::array<char, 20> digits;
    size_t begin = digits.size();
    do digits[--begin] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << std::string_view(digits.data() + begin, digits.size() - begin);
  }
  void write_to(int fd) const { [[maybe_unused]] const ssize_t written = ::write(fd, bytes_.data(), size_); }

 private:
  std::array<char, 5000> bytes_;  // a path takes at most 4096
  size_t size_ = 0;
};

int rank_of_process = 0;  // for the handler, which cannot look it up
std::atomic_flag page_was_lost;

/// The signal comes from the instruction that reads the page.
void end_on_lost_page(int signal, siginfo_t* info, void*) {
  const std::optional<MappedFile::Place> place = MappedFile::place_of(info->si_addr);
  if (!place || info->si_code <= 0) {  // not of a file, or sent by kill()
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  while (page_was_lost.test_and_set()) pause();  // another thread says it
  SignalLine line;
  line << kPrefix;
  if (rank_of_process != 0) {
    poll(nullptr, 0, static_cast<int>(kFirstWord.count()));
    line << "[rank " << static_cast<uint64_t>(rank_of_process) << "] ";
  }
  struct stat status {};
  const bool there = stat(place->path, &status) == 0;
  const uint64_t size = there ? static_cast<uint64_t>(status.st_size) : 0;
  line << place->path;
  if (there && size <= place->offset) {
    line << ": has become shorter while it is read: " << size << " bytes, it had " << place->size;
  } else {
    line << ": byte " << place->offset << " cannot be read any more";
  }
  (line << "; put it back and start again\n").write_to(STDERR_FILENO);
  _exit(1);
}

}  // namespace

std::string describe(const std::exception_ptr& failure) {
  if (!failure) return "the program ended itself without an exception";
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "out of memory: the system refused an allocation" + address_space_note();
  } catch (const std::system_error& error) {  // a file, a stream or a thread that the system refuses
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    return thread ? "the system refused a thread" + address_space_note() : one_line(error.what());
  } catch (const std::exception& error) {
    return fmt::format("internal error: {}", error.what());
  } catch (...) {
    return "internal error: an exception of an unknown type";
  }
}

bool is_supervised() { return std::getenv(kSupervisedVariable) != nullptr; }

int code_of(const std::exception_ptr& failure) {
  if (!is_supervised()) return 1;
  try {
    std::rethrow_exception(failure);
  } catch (const ConfigError&) {
    return kRefusedCode;
  } catch (...) {
    return 1;
  }
}

namespace {

/// The first `size` bytes or fewer, up to the end of a character.
std::string_view beginning_of(std::string_view text, size_t size) {
  if (size >= text.size()) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

/// The line with every value cut, and its end if it is very long for other reasons.
std::string with_short_values_in_line(std::string_view line) {
  constexpr size_t kLongest = 200;       // bytes of a value
  constexpr size_t kLongestLine = 1000;  // of what is not quoted, or has very many values; without paths
  constexpr size_t kLongestPath = 4096;  // a path is needed whole,
  constexpr int kMostPaths = 3;          // and no message of ours has more
  std::string text;
  size_t others = 0;  // bytes outside of paths
  int paths = 0;
  for (size_t at = 0; at < line.size() && others < kLongestLine;) {
    const bool quoted = line[at] == '"';
    size_t end = line.find_first_of(quoted ? "\"" : " \"", at + 1);
    while (quoted && end != line.npos && line[end - 1] == '\\') end = line.find('"', end + 1);
    std::string_view value = line.substr(at, end == line.npos ? end : end - at);
    at += value.size();
    const bool is_path =
        !quoted && value.find('/') != value.npos && value.size() <= kLongestPath && ++paths <= kMostPaths;
    const size_t longest = kLongest + (value.find_first_of(" \"") == 0 ? 1 : 0);  // behind what parts it from others
    text += is_path ? value : beginning_of(value, longest);
    if (!is_path && value.size() > longest) text += "...";
    if (!is_path) others += std::min(value.size(), longest);
    if (quoted && at < line.size()) text += '"', ++at, ++others;
  }
  return others < kLongestLine ? text : std::string(beginning_of(text, text.size() - (others - kLongestLine))) + "...";
}

}  // namespace

std::string with_short_values(std::string_view message) {
  constexpr size_t kMostLines = 100, kMostBytes = 20'000;  // a table has fewer
  std::string text;
  std::string_view rest = message;
  for (size_t lines = 0; lines < kMostLines && text.size() < kMostBytes; ++lines) {
    const size_t end = rest.find('\n');
    text += with_short_values_in_line(rest.substr(0, end));
    if (end == rest.npos) return text;
    text += '\n';
    rest.remove_prefix(end + 1);
  }
  return text + "...";
}

void print_error(const std::string& message) {
  const std::optional<JobPlace> place = place_in_job();
  std::string line(kPrefix);
  if (place && place->rank != 0) {
    std::this_thread::sleep_for(kFirstWord);
    line += fmt::format("[rank {}] ", place->rank);
  }
  line += with_indent(with_short_values(message));
  while (line.back() == '\n') line.pop_back();
  line += '\n';
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);  // in one piece, so that lines of several ranks do not mix
  std::fflush(stderr);
}

void catch_failures_of_threads() {
  std::set_terminate([] {
    print_error(describe(std::current_exception()));
    _exit(1);
  });
}

void catch_lost_pages() {
  const std::optional<JobPlace> place = place_in_job();
  rank_of_process = place ? place->rank : 0;
  struct sigaction action {};
  action.sa_sigaction = end_on_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace nought
