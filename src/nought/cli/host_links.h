// The links between the hosts of a run, as its ranks will find them: through MPI, one rank on each host.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "nought/cli/hostfile.h"
#include "nought/comm/communicator.h"

namespace nought {

/// From a host to the next one of the file; of more than two, the last one's next is the first.
struct HostLink {
  double seconds = 0;           // until a message of four bytes arrives
  double bytes_per_second = 0;  // of long messages, one way
};

/// Measures each link while the others are quiet, in about half a second on fast ones. The result is the same on all
/// ranks. Collective.
std::vector<HostLink> measure_links(Communicator& world, const Context& context);

/// How the program answers that is started for a measurement; what is no such line gives none.
std::string links_line(const std::vector<HostLink>& links);
std::vector<HostLink> links_in(const std::string& line);

/// Starts this program once on each of the hosts. If it does not measure within the time, `problem` says why.
struct MeasuredLinks {
  std::vector<HostLink> links = {};
  std::string problem = {};
  int signal = 0;  // by which the user ended it
};
MeasuredLinks links_between(const std::vector<Host>& hosts, std::chrono::seconds patience = std::chrono::seconds(60));

}  // namespace nought
