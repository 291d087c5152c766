// What this machine is, in a few facts: for `nought info` and the record of a run.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/json_fwd.h"

namespace nought {

/// A number of kB in /proc/meminfo ("MemTotal"), in bytes; 0 if it is not there.
int64_t meminfo_bytes(const std::string& key);

/// CPU, instruction set, cores, threads of this rank and bytes of memory, by name.
OrderedJson machine_facts();

}  // namespace nought
