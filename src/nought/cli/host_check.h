// check_hosts(): whether the hosts of a run can make it, before it starts: `nought doctor`, and the quick part of it
// that `nought train` begins with.
//
// Design goals: one host is one line, which names what is wrong and the way out; all hosts are asked at once, and one
// that does not answer delays nobody. Non-goals: the links between them, which measure_links() tries.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "nought/cli/host_facts.h"
#include "nought/cli/hostfile.h"

namespace nought {

/// What a run needs of its hosts.
struct RunNeeds {
  std::vector<std::string> files = {};  // that every rank reads
  std::string output_dir = {};          // that all write to; "": there is no run
  int64_t rank_bytes = 0;               // memory of a rank, as planned; 0: not known
  int ranks = 0;                        // 0: as many as slots
  // What a network file system gets to show a new file.
  std::chrono::milliseconds until_seen{3000};
};

struct HostReport {
  Host host;
  int ranks = 0;                           // of the run that it gets, in the order of the file
  std::optional<HostFacts> facts = {};     // none: no answer
  double clock = 0;                        // seconds by which its clock is ahead of this machine's, at least
  std::vector<std::string> problems = {};  // each with the way out
  std::vector<std::string> notes = {};     // worth knowing, and no problem
};

/// Asks all hosts, this one in this process. The program of the others is `program`, at the same path.
std::vector<HostReport> check_hosts(const std::vector<Host>& hosts, const RunNeeds& needs, const std::string& program);

/// The ranks that each host gets where `ranks` fill the slots in their order; 0 ranks: all slots.
std::vector<int> ranks_of_hosts(const std::vector<Host>& hosts, int ranks);

/// "h2: its clock is 12.3 s ahead ..."; the problems of all hosts in one line, or "".
std::string describe_problems(const std::vector<HostReport>& reports);

}  // namespace nought
