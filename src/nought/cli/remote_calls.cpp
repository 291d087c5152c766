#include "nought/cli/remote_calls.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/host.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"
#include "nought/cli/child_process.h"

namespace nought {

namespace {

constexpr int kNotStarted = 127;  // as a shell says it

std::vector<std::string> words_of(const RemoteCommand& command) {
  std::vector<std::string> words = remote_agent();
  if (std::filesystem::path(words.front()).filename() == "ssh")
    words.insert(words.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=5"});
  words.insert(words.end(), {command.host, command.command});
  return words;
}

/// A command that runs.
class RemoteCall {
 public:
  explicit RemoteCall(const RemoteCommand& command) {
    answer_.asked = seconds_since_1970();
    std::vector<std::string> words = words_of(command);
    const std::vector<char*> arguments = pointers(words);
    const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    child_ = fork();
    if (child_ == 0) {
      setpgid(0, 0);
      dup2(null.get(), STDIN_FILENO), dup2(out_.write_end(), STDOUT_FILENO), dup2(err_.write_end(), STDERR_FILENO);
      execvp(arguments[0], arguments.data());
      _exit(kNotStarted);
    }
    out_.close_write_end(), err_.close_write_end();
    for (const int each : {out_.read_end(), err_.read_end()}) fcntl(each, F_SETFL, O_NONBLOCK);
  }

  /// Reads what it says. Whether it has ended.
  bool serve() {
    if (child_ < 0) return true;
    read_all();
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) != child_) return false;
    child_ = -1;
    read_all();
    answer_.answered = seconds_since_1970();
    answer_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }
  void end() {
    if (child_ < 0) return;
    kill(-child_, SIGKILL), kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  const RemoteAnswer& answer() const { return answer_; }

 private:
  void read_all() {
    read_available(out_.read_end(), answer_.out);
    read_available(err_.read_end(), answer_.err);
  }

  Pipe out_, err_;
  pid_t child_ = -1;  // below 0: it has ended, or could not be started
  RemoteAnswer answer_;
};

}  // namespace

std::vector<std::string> remote_agent() {
  const char* agent = std::getenv("OMPI_MCA_plm_rsh_agent");
  std::vector<std::string> words = split(agent == nullptr ? "ssh" : agent, ' ');
  words.erase(std::remove(words.begin(), words.end(), ""), words.end());
  if (words.empty()) words.emplace_back("ssh");
  return words;
}

bool is_this_host(const std::string& name) { return name == host_name() || name == "localhost" || name == "127.0.0.1"; }

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::vector<RemoteAnswer> call_hosts(const std::vector<RemoteCommand>& commands, std::chrono::milliseconds patience) {
  std::deque<RemoteCall> calls;
  for (const RemoteCommand& command : commands) calls.emplace_back(command);
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    bool all = true;
    for (RemoteCall& call : calls) all = call.serve() && all;
    if (all || std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::vector<RemoteAnswer> answers;
  for (RemoteCall& call : calls) {
    call.end();
    answers.push_back(call.answer());
  }
  return answers;
}

}  // namespace nought
