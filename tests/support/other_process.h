// A child process that does something and then waits to be ended, or killed as the system would kill it.
#pragma once

#include <array>
#include <csignal>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

namespace nought::test {

class OtherProcess {
 public:
  /// Returns when `act` has returned in the child, whose objects live on there.
  template <class F>
  explicit OtherProcess(F&& act) {
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0 || (child_ = fork()) < 0) throw std::runtime_error("cannot start a process");
    if (child_ == 0) {
      close(ready[0]);
      const auto kept = act();
      if (write(ready[1], "!", 1) == 1)
        for (;;) pause();
      _exit(1);
    }
    close(ready[1]);
    char said = 0;
    const bool begun = read(ready[0], &said, 1) == 1;
    close(ready[0]);
    if (!begun) throw std::runtime_error("the other process ended");
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  pid_t id() const { return child_; }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
};

}  // namespace nought::test
