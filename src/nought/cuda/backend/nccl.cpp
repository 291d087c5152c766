#include "nought/cuda/backend/nccl.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "nought/cuda/backend/stream.h"

namespace nought::cuda {

namespace {

int nccl_type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return nccl::kF64;
    case DType::f32:
      return nccl::kF32;
    case DType::bf16:
      return nccl::kBf16;
    case DType::f16:
      return nccl::kF16;
    case DType::i64:
      return nccl::kI64;
    case DType::i32:
      return nccl::kI32;
    case DType::u8:
      return nccl::kU8;
    case DType::i8:
      return nccl::kI8;
  }
  fail<DeviceError>("NCCL has no type for this dtype");
}

cudaStream_t handle_of(Stream& stream) {
  auto* const queue = dynamic_cast<CudaStream*>(&stream);
  require<DeviceError>(queue != nullptr, "NCCL: the stream is one of the host, expected one of the device");
  return queue->handle();
}

/// The first of two results that is a failure.
int worse_of(int first, int second) { return first != nccl::kSuccess && first != nccl::kInProgress ? first : second; }

}  // namespace

std::string nccl_version(const NcclFunctions& functions) {
  int version = 0;
  const int result = functions.version(&version);
  require<DeviceError>(result == nccl::kSuccess, "ncclGetVersion: error {}", result);
  return "NCCL " + version_text(static_cast<size_t>(version));
}

std::vector<std::byte> NcclGroup::make_id(const NcclFunctions& functions) {
  nccl::UniqueId id{};
  const int result = functions.unique_id(&id);
  require<CommError>(result == nccl::kSuccess, "NCCL: an identity of a group: {} ({})", functions.error_text(result),
                     functions.last_error(nullptr));
  const auto* const bytes = reinterpret_cast<const std::byte*>(id.bytes);
  return {bytes, bytes + sizeof id.bytes};
}

NcclGroup::NcclGroup(const NcclFunctions& functions, int device, std::span<const std::byte> id, int rank, int size,
                     std::chrono::milliseconds patience)
    : functions_(functions), device_(device), rank_(rank), size_(size), patience_(patience) {
  nccl::UniqueId told{};
  require<CommError>(id.size() == sizeof told.bytes, "NCCL: the identity of a group has {} bytes, expected {}",
                     id.size(), sizeof told.bytes);
  std::memcpy(told.bytes, id.data(), id.size());
  check(cudaSetDevice(device), "the device of a group");
  nccl::Config config;
  std::unique_lock lock(mutex_);
  try {
    must(functions_.join(&comm_, size, told, rank, &config), "meeting");
    settle(lock, "meeting", patience_);
  } catch (...) {
    if (comm_ != nullptr) functions_.abort(comm_);
    throw;
  }
}

NcclGroup::~NcclGroup() {
  constexpr std::chrono::seconds kParting(10);
  std::unique_lock lock(mutex_);
  if (aborted_) return;
  cudaSetDevice(device_);
  try {
    must(functions_.finalize(comm_), "parting");
    settle(lock, "parting", kParting);
    must(functions_.destroy(comm_), "parting");
  } catch (const Error&) {  // nobody is left to be told
    if (!aborted_) functions_.abort(comm_);
  }
}

void NcclGroup::must(int result, std::string_view what) const {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  fail<CommError>("NCCL: {} in group of {} on rank {}: {} ({}): {}", what, size_, rank_, functions_.error_text(result),
                  result, functions_.last_error(comm_));
}

void NcclGroup::require_whole(std::string_view what) const {
  require<CommError>(!aborted_, "NCCL: {} in group of {} on rank {}: the group was aborted", what, size_, rank_);
}

void NcclGroup::settle(std::unique_lock<std::mutex>& lock, std::string_view what, std::chrono::milliseconds patience) {
  constexpr std::chrono::microseconds kNap(50);
  const Clock::time_point deadline = Clock::now() + patience;
  while (true) {
    int result = nccl::kSuccess;
    must(functions_.fault(comm_, &result), what);
    must(result, what);
    if (result == nccl::kSuccess) return;
    require<CommError>(Clock::now() < deadline, "NCCL: {} in group of {} on rank {}: the others did not come in {} s",
                       what, size_, rank_, std::chrono::duration<double>(patience).count());
    lock.unlock();
    std::this_thread::sleep_for(kNap);
    lock.lock();
    require_whole(what);
  }
}

template <class Enqueue>
void NcclGroup::run(std::string_view what, Stream& stream, const Enqueue& enqueue) {
  const cudaStream_t queue = handle_of(stream);
  check(cudaSetDevice(device_), what);
  std::unique_lock lock(mutex_);
  require_whole(what);
  must(functions_.group_start(), what);
  const int refused = enqueue(queue);
  const int ended = functions_.group_end();  // always: it belongs to the thread
  must(worse_of(refused, ended), what);
  if (ended == nccl::kInProgress || refused == nccl::kInProgress) settle(lock, what, patience_);
}

void NcclGroup::exchange(Stream& stream, const std::vector<DevicePart>& sent, const std::vector<DevicePart>& received) {
  const auto is_empty = [](const DevicePart& part) { return part.bytes == 0; };
  if (std::all_of(sent.begin(), sent.end(), is_empty) && std::all_of(received.begin(), received.end(), is_empty))
    return;
  run("messages", stream, [&](cudaStream_t queue) {
    int result = nccl::kSuccess;
    for (const DevicePart& part : sent)
      if (part.bytes > 0)
        result = worse_of(result, functions_.send(part.at, part.bytes, nccl::kU8, part.rank, comm_, queue));
    for (const DevicePart& part : received)
      if (part.bytes > 0)
        result = worse_of(result, functions_.receive(part.at, part.bytes, nccl::kU8, part.rank, comm_, queue));
    return result;
  });
}

void NcclGroup::broadcast(Stream& stream, std::byte* at, size_t bytes, int root) {
  if (bytes == 0) return;
  run("broadcast", stream,
      [&](cudaStream_t queue) { return functions_.broadcast(at, at, bytes, nccl::kU8, root, comm_, queue); });
}

void NcclGroup::all_gather(Stream& stream, const std::byte* shard, std::byte* full, size_t bytes) {
  if (bytes == 0) return;
  run("all_gather", stream,
      [&](cudaStream_t queue) { return functions_.all_gather(shard, full, bytes, nccl::kU8, comm_, queue); });
}

void NcclGroup::sum_for_all(Stream& stream, std::byte* at, int64_t count, DType dtype) {
  if (count == 0) return;
  run("all_reduce", stream, [&](cudaStream_t queue) {
    return functions_.all_reduce(at, at, static_cast<size_t>(count), nccl_type_of(dtype), nccl::kSum, comm_, queue);
  });
}

void NcclGroup::sum_in_parts(Stream& stream, const std::byte* full, std::byte* shard, int64_t count, DType dtype) {
  if (count == 0) return;
  run("reduce_scatter", stream, [&](cudaStream_t queue) {
    return functions_.reduce_scatter(full, shard, static_cast<size_t>(count), nccl_type_of(dtype), nccl::kSum, comm_,
                                     queue);
  });
}

std::string NcclGroup::fault() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || aborted_) return "";  // who holds it asks by itself
  int result = nccl::kSuccess;
  const int asked = functions_.fault(comm_, &result);
  const int failed = worse_of(asked, result);
  if (failed == nccl::kSuccess || failed == nccl::kInProgress) return "";
  return fmt::format("NCCL: {} ({}): {}", functions_.error_text(failed), failed, functions_.last_error(comm_));
}

void NcclGroup::abort() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(aborted_, true)) return;
  cudaSetDevice(device_);
  functions_.abort(comm_);
}

}  // namespace nought::cuda
