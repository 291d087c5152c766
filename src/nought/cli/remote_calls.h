// Commands on other hosts, by the agent with which mpirun reaches them: all hosts at once, with what they say and when.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "nought/cli/hostfile.h"

namespace nought {

/// The command by which mpirun reaches other hosts: Open MPI's plm_rsh_agent, or ssh.
std::vector<std::string> remote_agent();

/// Whether mpirun starts ranks there without an agent: the host is this machine.
bool is_this_host(const std::string& name);

/// The text as one word of a shell.
std::string shell_word(const std::string& text);

struct RemoteAnswer {
  int code = -1;                   // exit code of the command or of the agent; -1: it did not end in time
  std::string out = {}, err = {};  // what it printed
  double asked = 0, answered = 0;  // seconds since 1970, by the clock of this machine
};

/// A shell's command and the host that runs it.
struct RemoteCommand {
  std::string host, command;
};

/// Runs the commands, each on its host, and ends what has not ended within the time. An answer for each.
std::vector<RemoteAnswer> call_hosts(const std::vector<RemoteCommand>& commands, std::chrono::milliseconds patience);

}  // namespace nought
