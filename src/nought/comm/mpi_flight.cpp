#include "nought/comm/mpi_flight.h"

#include <unistd.h>

#include "nought/comm/flight_keeper.h"
#include "nought/comm/mpi_engine.h"

namespace nought {

std::shared_ptr<FlightRecorder> meet_recorders(MPI_Comm everyone, MPI_Comm host,
                                               const std::vector<std::string>& host_names) {
  struct Source {
    int pid = 0, descriptor = -1, host = 0;
  };
  int rank = 0;
  check_mpi(MPI_Comm_rank(everyone, &rank), "MPI_Comm_rank");
  Source mine{.pid = getpid(), .descriptor = open_kept_page(rank), .host = 0};
  if (mine.descriptor < 0) mine.descriptor = FlightPage::make_file();
  std::shared_ptr<FlightPage> page = FlightPage::map(mine.descriptor);
  if (!page) page = FlightPage::make();
  const auto recorder = std::make_shared<FlightRecorder>(page, rank, static_cast<int>(host_names.size()),
                                                         host_names[static_cast<size_t>(rank)]);
  mine.host = all_gathered(host, rank)[0];  // named after its first rank
  const std::vector<Source> sources = all_gathered(everyone, mine);
  std::vector<std::shared_ptr<FlightPage>> pages;
  for (const Source& source : sources)
    pages.push_back(source.host == mine.host ? FlightPage::of_process(source.pid, source.descriptor) : nullptr);
  pages[static_cast<size_t>(rank)] = page;
  recorder->set_peers(std::move(pages));
  check_mpi(MPI_Barrier(host), "MPI_Barrier");  // all have opened it, or never will
  if (mine.descriptor >= 0) close(mine.descriptor);
  return recorder;
}

}  // namespace nought
