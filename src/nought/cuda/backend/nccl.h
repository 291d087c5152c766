// Groups of GPUs by NCCL: the functions of the library that are called, and NcclGroup, which is a DeviceGroup of them.
//
// Design goals: no call of the library blocks the host but for the first meeting and the first use of a link. It is
// told so (`blocking` = 0), and then answers "in progress" until it has met the others; we ask until it has, or until
// our patience ends, or until the group is aborted. Movements are movements of bytes, whatever the dtype.
// Non-goals: several GPUs of one rank; registered buffers; groups that share resources.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "nought/cuda/backend/runtime.h"
#include "nought/cuda/library.h"
#include "nought/tensor/device_group.h"

namespace nought::cuda {

/// Numbers and structs of NCCL, which builds without its header know too. nccl_default.cpp holds them against the
/// header where there is one.
namespace nccl {
enum Result { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };
enum Op { kSum = 0 };
enum Type { kI8 = 0, kU8 = 1, kI32 = 2, kI64 = 4, kF16 = 6, kF32 = 7, kF64 = 8, kBf16 = 9 };

struct UniqueId {
  char bytes[128];
};
/// The struct of version 2.18; later versions take shorter ones too.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kVersion;
  int blocking = 0;
  int cluster_size = INT_MIN, least_blocks = INT_MIN, most_blocks = INT_MIN;
  const char* network = nullptr;
  int shares_on_split = INT_MIN, traffic_class = INT_MIN;
  static constexpr unsigned kVersion = 21800;
};
using Comm = void*;
}  // namespace nccl

/// The functions of the library.
struct NcclFunctions {
  int (*version)(int* version);
  int (*unique_id)(nccl::UniqueId* id);
  int (*join)(nccl::Comm* comm, int size, nccl::UniqueId id, int rank, nccl::Config* config);
  int (*finalize)(nccl::Comm comm);
  int (*destroy)(nccl::Comm comm);
  int (*abort)(nccl::Comm comm);
  int (*fault)(nccl::Comm comm, int* result);
  const char* (*error_text)(int result);
  const char* (*last_error)(nccl::Comm comm);
  int (*group_start)();
  int (*group_end)();
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, nccl::Comm comm, cudaStream_t stream);
  int (*all_gather)(const void* from, void* to, size_t count, int type, nccl::Comm comm, cudaStream_t stream);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, nccl::Comm comm, cudaStream_t stream);
  int (*reduce_scatter)(const void* from, void* to, size_t count, int type, int op, nccl::Comm comm,
                        cudaStream_t stream);
  int (*send)(const void* from, size_t count, int type, int peer, nccl::Comm comm, cudaStream_t stream);
  int (*receive)(void* to, size_t count, int type, int peer, nccl::Comm comm, cudaStream_t stream);
};

/// The functions of the library that is found. IoError if there is none, or if it lacks one; DeviceError if it is too
/// old.
NcclFunctions load_nccl(const LibrarySearch& search);
/// The functions of the environment's library, loaded once; the tests have their own.
const NcclFunctions& nccl_functions();
/// "NCCL 2.28.9"
std::string nccl_version(const NcclFunctions& functions);

class NcclGroup final : public DeviceGroup {
 public:
  /// Meets the other ranks. `device` is the number of this rank's GPU.
  NcclGroup(const NcclFunctions& functions, int device, std::span<const std::byte> id, int rank, int size,
            std::chrono::milliseconds patience);
  ~NcclGroup() override;

  static std::vector<std::byte> make_id(const NcclFunctions& functions);

  void exchange(Stream& stream, const std::vector<DevicePart>& sent, const std::vector<DevicePart>& received) override;
  void broadcast(Stream& stream, std::byte* at, size_t bytes, int root) override;
  void all_gather(Stream& stream, const std::byte* shard, std::byte* full, size_t bytes) override;
  void sum_for_all(Stream& stream, std::byte* at, int64_t count, DType dtype) override;
  void sum_in_parts(Stream& stream, const std::byte* full, std::byte* shard, int64_t count, DType dtype) override;
  std::string fault() override;
  void abort() override;

 private:
  using Clock = LinkedDevice::Clock;
  /// Calls enqueue(stream) between the start and the end of a group of calls, whose links are there when it returns.
  template <class Enqueue>
  void run(std::string_view what, Stream& stream, const Enqueue& enqueue);
  /// Returns when the library has done in the background what it was asked to; holds the lock, but not while it sleeps.
  void settle(std::unique_lock<std::mutex>& lock, std::string_view what, std::chrono::milliseconds patience);
  void must(int result, std::string_view what) const;
  void require_whole(std::string_view what) const;

  const NcclFunctions& functions_;
  const int device_, rank_, size_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // calls of the library for this group, one at a time
  bool aborted_ = false;
  nccl::Comm comm_ = nullptr;
};

}  // namespace nought::cuda
