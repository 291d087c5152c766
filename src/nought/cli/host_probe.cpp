#include "nought/cli/host_probe.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/host.h"
#include "nought/base/text.h"
#include "nought/cli/child_process.h"

namespace nought {

namespace {

std::vector<std::string> question(const std::string& host) {
  std::vector<std::string> words = remote_agent();
  if (std::filesystem::path(words.front()).filename() == "ssh")
    words.insert(words.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=5"});
  words.insert(words.end(), {host, "true"});
  return words;
}

pid_t ask(const std::string& host) {
  std::vector<std::string> words = question(host);
  const std::vector<char*> arguments = pointers(words);
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), stream);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

/// Whether the child ends with 0 until then. It is ended if it does not.
bool answers(pid_t child, std::chrono::steady_clock::time_point until) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      kill(-child, SIGKILL), kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::vector<std::string> remote_agent() {
  const char* agent = std::getenv("OMPI_MCA_plm_rsh_agent");
  std::vector<std::string> words = split(agent == nullptr ? "ssh" : agent, ' ');
  words.erase(std::remove(words.begin(), words.end(), ""), words.end());
  if (words.empty()) words.emplace_back("ssh");
  return words;
}

std::vector<Host> silent_hosts(const std::vector<Host>& hosts, std::chrono::seconds patience) {
  std::vector<std::pair<Host, pid_t>> asked;
  for (const Host& host : hosts)
    if (host.name != host_name() && host.name != "localhost" && host.name != "127.0.0.1")
      asked.emplace_back(host, ask(host.name));
  const auto until = std::chrono::steady_clock::now() + patience;
  std::vector<Host> silent;
  for (const auto& [host, child] : asked)
    if (child < 0 || !answers(child, until)) silent.push_back(host);
  return silent;
}

std::string describe_silent(const std::vector<Host>& silent) {
  if (silent.empty()) return "";
  std::vector<std::string> names;
  for (const Host& host : silent) names.push_back(fmt::format("{} (line {} of the host file)", host.name, host.line));
  return fmt::format(
      "host{} {}: no answer to `{} {} true`; see that the host is up and lets you in without a password, or leave it "
      "out with --exclude {}",
      silent.size() > 1 ? "s" : "", fmt::join(names, ", "), fmt::join(remote_agent(), " "), silent[0].name,
      silent[0].name);
}

}  // namespace nought
