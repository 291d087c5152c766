#include "nought/cli/stop_signals.h"

#include <atomic>
#include <cstring>
#include <ctime>

#include <unistd.h>

namespace nought {

namespace {

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_time{0};  // in milliseconds
std::atomic<bool> announces{false};

int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Calls only what a signal handler may call.
void take_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_time = milliseconds_now();
    if (!announces) return;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kStopWord, std::strlen(kStopWord));
    return;
  }
  if (milliseconds_now() - first_time < kOneWish.count()) return;
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

StopSignals::StopSignals(bool announce) {
  first_signal = 0, announces = announce;
  struct sigaction action {};
  action.sa_handler = take_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
    // A shell's background job ignores SIGINT, which is meant for what runs in front.
    if (before_[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &before_[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int StopSignals::asked() { return first_signal; }

}  // namespace nought
