#include "nought/cli/child_process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {

FileDescriptor::FileDescriptor(int fd) : fd_(fd) {
  require<IoError>(fd >= 0, "the launcher: {}", std::strerror(errno));
}

FileDescriptor::~FileDescriptor() { close(fd_); }

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

void read_available(int fd, std::string& text) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t count = read(fd, bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return;
  }
}

EndingSignals::EndingSignals() {
  sigemptyset(&set_);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set_, signal);  // nohup(1) ignores SIGHUP, for instance
  }
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
  fd_.emplace(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
}

void EndingSignals::restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int EndingSignals::take() const {
  signalfd_siginfo info{};
  return read(fd(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

pid_t start_child(std::string_view what, ChildProgram program, const EndingSignals& signals) {
  const std::vector<char*> arguments = pointers(program.arguments), environment = pointers(program.environment);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = getpid(), child = fork();
  require<DeviceError>(child >= 0, "cannot start {}: {}", what, std::strerror(errno));
  if (child != 0) return child;
  signals.restore();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  dup2(null.get(), STDIN_FILENO);
  if (program.out >= 0) dup2(program.out, STDOUT_FILENO);
  if (program.err >= 0) dup2(program.err, STDERR_FILENO);
  execve(program.path.c_str(), arguments.data(), environment.data());
  _exit(127);
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail<IoError>("the launcher: {}", std::strerror(errno));
  read_.emplace(ends[0]), write_.emplace(ends[1]);
}

}  // namespace nought
