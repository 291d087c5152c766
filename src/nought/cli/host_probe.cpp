#include "nought/cli/host_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/cli/remote_calls.h"

namespace nought {

std::vector<Host> silent_hosts(const std::vector<Host>& hosts, std::chrono::seconds patience) {
  std::vector<Host> others;
  std::vector<RemoteCommand> commands;
  for (const Host& host : hosts)
    if (!is_this_host(host.name)) others.push_back(host), commands.push_back({host.name, "true"});
  const std::vector<RemoteAnswer> answers = call_hosts(commands, patience);
  std::vector<Host> silent;
  for (size_t i = 0; i < others.size(); ++i)
    if (answers[i].code != 0) silent.push_back(others[i]);
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
