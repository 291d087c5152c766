// The machine that this process runs on: its name, for messages and file names, its memory, and the ranks of the job on
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nought {

/// As gethostname() has it; "-" if it has none.
std::string host_name();

/// Bytes of RAM.
int64_t memory_of_machine();

/// How many ranks of the job run on this machine, as LOCAL_WORLD_SIZE or the variables of mpirun and srun say it.
std::optional<int> launched_on_host();

}  // namespace nought
