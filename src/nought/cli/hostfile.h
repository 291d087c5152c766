// Hostfile: the machines of a run and how many ranks each takes, as DeepSpeed's host files and its --include and
// --exclude say it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

struct Host {
  std::string name;
  int slots = 0;  // ranks that it takes
  int line = 0;   // where it stands in the file; the first line is 1
};

/// "HOST slots=N" lines; empty ones and what follows # say nothing. ConfigError, with file and line, for any other
/// line, a host that stands there twice, and a file without hosts.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);
/// Reads them from a file. IoError if it cannot be read.
std::vector<Host> read_hostfile(const std::string& file);

/// The hosts that `include` names ("h1@h2:0,2": all slots of h1, two of h2), or those that are left without what
/// `exclude` names. Both empty: all. Slots are counted, ranks are not bound to them. ConfigError for a host or a slot
/// that the file does not have, if both are given, and if no host is left.
std::vector<Host> choose_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude,
                               const std::string& file);

/// The hosts of an allocation of Slurm, as SLURM_JOB_NODELIST ("n[01-03,7],g1") and SLURM_TASKS_PER_NODE ("2(x3),1")
/// say it. ConfigError for what is no such text.
std::vector<Host> hosts_of_slurm(const std::string& nodes, const std::string& tasks);

int total_slots(const std::vector<Host>& hosts);
/// "h1:2,h2:2", as mpirun's --host takes it.
std::string for_mpirun(const std::vector<Host>& hosts);

}  // namespace nought
