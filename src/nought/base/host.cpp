#include "nought/base/host.h"

#include <array>
#include <cstdlib>

#include <unistd.h>

namespace nought {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "-";
  return name.data();
}

int64_t memory_of_machine() { return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE); }

std::optional<int> launched_on_host() {
  // srun says how many tasks each node has: "4(x2),3" or "4"; the first is right unless nodes differ.
  for (const char* name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"})
    if (const char* text = std::getenv(name)) {
      const int ranks = std::atoi(text);
      if (ranks > 0) return ranks;
    }
  return std::nullopt;
}

}  // namespace nought
