#include "nought/comm/mpi_neighbours.h"

#include <algorithm>

#include "nought/comm/mpi_engine.h"

namespace nought {

std::shared_ptr<const Neighbours> meet_neighbours(MPI_Comm group, MPI_Comm host, const Context& context) {
  struct Place {
    int host = 0, local_rank = 0, local_size = 1;
    bool has_windows = false;
  };
  auto neighbours = std::make_shared<Neighbours>();
  Place mine;
  check_mpi(MPI_Comm_rank(host, &mine.local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &mine.local_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(group, &mine.host), "MPI_Comm_rank");
  mine.host = all_gathered(host, mine.host)[0];  // named after its first rank
  neighbours->windows = SharedWindows::create(host, context);
  mine.has_windows = mine.local_size == 1 || neighbours->windows;
  const std::vector<Place> places = all_gathered(group, mine);
  int most_local_ranks = 1;
  for (const Place& place : places) {
    if (!place.has_windows) return std::make_shared<Neighbours>();
    most_local_ranks = std::max(most_local_ranks, place.local_size);
    neighbours->host.push_back(place.host);
    neighbours->local_rank.push_back(place.local_rank);
  }
  neighbours->slot_bytes = shared_slot_bytes(most_local_ranks);
  return neighbours;
}

}  // namespace nought
