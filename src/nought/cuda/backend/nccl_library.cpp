#include "nought/cuda/backend/nccl.h"

namespace nought::cuda {

NcclFunctions load_nccl(const LibrarySearch& search) {
  const Library library({"libnccl.so.2"}, search);
  NcclFunctions to{};
  const auto take = [&]<class Function>(Function*& function, const char* name) {
    function = library.function<Function>(name);
  };
  take(to.version, "ncclGetVersion");
  int version = 0;
  const int result = to.version(&version);
  require<DeviceError>(result == nccl::kSuccess, "{}: ncclGetVersion: error {}", library.path(), result);
  require<DeviceError>(version >= static_cast<int>(nccl::Config::kVersion), "{} is NCCL {}, 2.18 is needed",
                       library.path(), version_text(static_cast<size_t>(version)));
  take(to.unique_id, "ncclGetUniqueId");
  take(to.join, "ncclCommInitRankConfig");
  take(to.finalize, "ncclCommFinalize");
  take(to.destroy, "ncclCommDestroy");
  take(to.abort, "ncclCommAbort");
  take(to.fault, "ncclCommGetAsyncError");
  take(to.error_text, "ncclGetErrorString");
  take(to.last_error, "ncclGetLastError");
  take(to.group_start, "ncclGroupStart");
  take(to.group_end, "ncclGroupEnd");
  take(to.broadcast, "ncclBroadcast");
  take(to.all_gather, "ncclAllGather");
  take(to.all_reduce, "ncclAllReduce");
  take(to.reduce_scatter, "ncclReduceScatter");
  take(to.send, "ncclSend");
  take(to.receive, "ncclRecv");
  return to;
}

}  // namespace nought::cuda
