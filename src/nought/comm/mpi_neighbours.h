// Neighbours: which ranks of an MPI group share a host, and the memory that those of this host share.
#pragma once

#include "nought/comm/shared_windows.h"

namespace nought {

/// Where the ranks of a group are, by rank of the group, and the shared windows of this rank's host. If slot_bytes is
/// 0, no host has windows, and all data goes by messages.
struct Neighbours {
  std::shared_ptr<SharedWindows> windows;  // null on a host with one rank of the group
  int64_t slot_bytes = 0;                  // the smallest slot of any host's windows: the same number on all ranks
  std::vector<int> host = {};              // the number of each rank's host
  std::vector<int> local_rank = {};        // each rank's number among the group's ranks on its host
};

/// Shares windows among the ranks of `host`, those of `group` on one host. If any host of the group cannot, none does.
/// Collective over the group; the caller holds MPI's lock.
std::shared_ptr<const Neighbours> meet_neighbours(MPI_Comm group, MPI_Comm host, const Context& context);

}  // namespace nought
