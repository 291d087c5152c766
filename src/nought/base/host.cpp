#include "nought/base/host.h"

#include <array>

#include <unistd.h>

namespace nought {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "-";
  return name.data();
}

}  // namespace nought
