// What a process needs that starts others and waits for them: descriptors that close themselves, pipes, and signals
// that are read instead of ending it.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace nought {

class FileDescriptor {
 public:
  /// IoError, with the reason in errno, for one below 0.
  explicit FileDescriptor(int fd);
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

/// The strings as execve() takes them; they point into `strings`.
std::vector<char*> pointers(std::vector<std::string>& strings);

/// Appends what can be read now from a descriptor that does not block.
void read_available(int fd, std::string& text);

/// The signals that end a job. While one of these objects lives they are read from fd() instead of ending this process.
class EndingSignals {
 public:
  EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
  ~EndingSignals() { restore(); }
  /// A child does so before it becomes another program.
  void restore() const;
  int fd() const { return fd_->get(); }
  /// The next one that has arrived, or 0.
  int take() const;

 private:
  sigset_t set_, before_;
  std::optional<FileDescriptor> fd_;
};

/// A program with all of its environment, which gets no input. out, err: where what it says goes; below 0: where this
/// process says it.
struct ChildProgram {
  std::string path;
  std::vector<std::string> arguments, environment;
  int out = -1, err = -1;
};
/// Starts it in a process group of its own, so that Ctrl-C reaches it once, through this process; and it ends with this
/// process, whatever ends that. DeviceError "cannot start `what`".
pid_t start_child(std::string_view what, ChildProgram program, const EndingSignals& signals);

/// A pipe through which the job says something to the launcher.
class Pipe {
 public:
  Pipe();
  int read_end() const { return read_->get(); }
  int write_end() const { return write_->get(); }
  void close_write_end() { write_.reset(); }

 private:
  std::optional<FileDescriptor> read_, write_;
};

}  // namespace nought
