// The library of the machine, and its header, which the numbers of nccl.h are held against. The emulated GPU of the
// tests has functions of its own in place of this file.
#include <cstddef>

#include "nought/cuda/backend/nccl.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace nought::cuda::nccl {

constexpr bool equal(int ours, int theirs) { return ours == theirs; }

static_assert(equal(kSuccess, ncclSuccess) && equal(kInvalidArgument, ncclInvalidArgument) &&
              equal(kInvalidUsage, ncclInvalidUsage) && equal(kRemoteError, ncclRemoteError) &&
              equal(kInProgress, ncclInProgress) && equal(kSum, ncclSum));
static_assert(equal(kI8, ncclInt8) && equal(kU8, ncclUint8) && equal(kI32, ncclInt32) && equal(kI64, ncclInt64) &&
              equal(kF16, ncclFloat16) && equal(kF32, ncclFloat32) && equal(kF64, ncclFloat64) &&
              equal(kBf16, ncclBfloat16));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(Config) <= sizeof(ncclConfig_t) && offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Config, network) == offsetof(ncclConfig_t, netName) &&
              offsetof(Config, shares_on_split) == offsetof(ncclConfig_t, splitShare));

}  // namespace nought::cuda::nccl
#endif

namespace nought::cuda {

const NcclFunctions& nccl_functions() {
  static const NcclFunctions functions = load_nccl(LibrarySearch::of_environment());
  return functions;
}

}  // namespace nought::cuda
