#include "nought/tensor/address_space.h"

#include <cstdint>

#include <fmt/format.h>
#include <sys/resource.h>

#include "nought/base/text.h"

namespace nought {

std::string address_space_note() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(" (ulimit -v limits this process to {})", format_bytes(static_cast<int64_t>(limit.rlim_cur)));
}

}  // namespace nought
