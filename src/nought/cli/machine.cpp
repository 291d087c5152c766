#include "nought/cli/machine.h"

#include <cstdlib>
#include <sstream>

#include "nought/base/cores.h"
#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/cli/launch.h"
#include "nought/kernels/isa.h"

namespace nought {

int64_t meminfo_bytes(const std::string& key) {
  std::istringstream file(system_text("/proc/meminfo"));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

OrderedJson machine_facts() {
  const Cores cores = find_cores();
  return {{"cpu", cpu_model()},
          {"isa", name_of(isa())},
          {"cores", cores.machine},
          {"usable_cores", cores.usable},
          {"threads_per_rank", threads_per_rank()},
          {"memory_bytes", meminfo_bytes("MemTotal")}};
}

}  // namespace nought
