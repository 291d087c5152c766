// Pool: the kinds of memory that a Buffer may lie in.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

/// Where bytes live: the compute device, the host beside it, or a file (NVMe). On a CPU device, device memory is RAM.
enum class Pool : uint8_t { device, host, file };
inline constexpr int kNumPools = 3;
std::string_view name_of(Pool pool);

}  // namespace nought
