#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_emulation/control.h"
#include "cuda_emulation/streams.h"
#include "cuda_runtime.h"
#include <sys/mman.h>

#include "nought/base/math.h"
#include "nought/tensor/stream.h"

struct CUstream_st {
  nought::Stream stream{nought::Stream::Kind::late, "emulated"};
  int device = 0;
};
struct CUevent_st {
  nought::Event event;
  bool keeps_time = true;
  std::shared_ptr<std::chrono::steady_clock::time_point> at = {};  // when the stream got there
};

namespace nought::emulation {
namespace {

constexpr size_t kPage = 4096, kAlignment = 256, kMemory = size_t{4} << 30;
constexpr std::byte kMargin{0xA5}, kFresh{0xFF};

/// A block of memory: [page][margin][bytes][margin below 256 bytes][page].
struct Allocation {
  std::byte* mapped = nullptr;
  size_t mapped_bytes = 0, bytes = 0;
  int device = 0;
};

struct Pinned {
  size_t bytes = 0;
  int device = 0;  // that was the current one
};

struct Runtime {
  std::mutex mutex;
  std::map<std::byte*, Allocation> allocations;
  std::map<std::byte*, Pinned> pinned;
  std::mutex streams_mutex;  // no task of a stream takes it
  std::set<cudaStream_t> streams;
  size_t used = 0, left = kMemory;
  std::map<const void*, size_t> dynamic;  // bytes of shared memory that kernels were allowed
  std::atomic<Order> order = 0;
  std::atomic<int64_t> kernels = 0;
  std::atomic<int> devices = 1;
};

Runtime& runtime() {
  static Runtime runtime;
  return runtime;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_text;
thread_local int current_device = 0;

cudaError_t failed(cudaError_t error) { return last_error = error; }

void check_margins_of(std::byte* address, const Allocation& each) {
  const auto check = [&](const std::byte* begin, const std::byte* end, std::string_view side) {
    for (const std::byte* at = begin; at < end; ++at)
      require<KernelError>(*at == kMargin, "something wrote {} bytes {} an allocation of {}",
                           at < address ? address - at : at - address - static_cast<ptrdiff_t>(each.bytes) + 1, side,
                           each.bytes);
  };
  check(each.mapped + kPage, address, "before");
  check(address + each.bytes, each.mapped + each.mapped_bytes - kPage, "behind");
}

/// What waits for an event or a stream: the failure of a task as an error, which stays.
template <class F>
cudaError_t waited(F&& wait) {
  try {
    wait();
    return cudaSuccess;
  } catch (const std::exception& error) {
    last_text = error.what();
    return failed(cudaErrorLaunchFailure);
  }
}

cudaMemoryType type_of(const void* address) {
  Runtime& here = runtime();
  const std::lock_guard lock(here.mutex);
  const auto* const at = static_cast<const std::byte*>(address);
  const auto contains = [&](const auto& map, const auto& size) {
    auto found = map.upper_bound(const_cast<std::byte*>(at));
    if (found == map.begin()) return false;
    --found;
    return at < found->first + size(found->second);
  };
  if (contains(here.allocations, [](const Allocation& each) { return each.bytes; })) return cudaMemoryTypeDevice;
  return contains(here.pinned, [](const Pinned& each) { return each.bytes; }) ? cudaMemoryTypeHost
                                                                              : cudaMemoryTypeUnregistered;
}

/// Memory of the host that no copy engine can reach: a copy from it is made before the call returns.
bool is_pageable(const void* address) { return type_of(address) == cudaMemoryTypeUnregistered; }

/// Memory goes back when all streams of its device have done what they were given, as cudaFree() has it.
void wait_for_streams_of(int device) {
  std::vector<Event> events;
  {
    const std::lock_guard lock(runtime().streams_mutex);
    for (const cudaStream_t stream : runtime().streams)
      if (stream->device == device) events.push_back(stream->stream.record());
  }
  for (const Event& event : events) event.state()->settle();
}

}  // namespace

void set_devices(int count) { runtime().devices = count; }

void set_order(Order order) { runtime().order = order; }

void set_memory_left(size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  runtime().left = bytes;
}

void check_margins() {
  const std::lock_guard lock(runtime().mutex);
  for (const auto& [address, each] : runtime().allocations) check_margins_of(address, each);
}

Stream& stream_of(cudaStream_t stream) { return stream->stream; }

int64_t kernels_run() { return runtime().kernels; }

constexpr size_t kMostDynamic = 227 << 10;

cudaError_t allow_dynamic(const void* kernel, size_t bytes) {
  if (bytes > kMostDynamic) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(runtime().mutex);
  runtime().dynamic[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t check_dynamic(const void* kernel, size_t bytes) {
  constexpr size_t kAlways = 48 << 10;
  const std::lock_guard lock(runtime().mutex);
  const auto found = runtime().dynamic.find(kernel);
  const size_t allowed = found == runtime().dynamic.end() ? kAlways : std::max(kAlways, found->second);
  return bytes <= allowed ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> body) {
  constexpr unsigned kMostThreads = 1024;
  if (config.gridDim.count() == 0 || config.blockDim.count() == 0 || config.blockDim.count() > kMostThreads ||
      config.dynamicSmemBytes > kMostDynamic || config.stream == nullptr)
    return failed(cudaErrorInvalidConfiguration);
  config.stream->stream.submit([config, body = std::move(body)] {
    const Order order = runtime().order;
    std::mt19937 random(order);
    std::vector<int> numbers;
    arrange(numbers, static_cast<int>(config.gridDim.count()), order, random);
    for (const int i : numbers) {
      const auto number = static_cast<unsigned>(i);
      const Index index{number % config.gridDim.x, number / config.gridDim.x % config.gridDim.y,
                        number / config.gridDim.x / config.gridDim.y};
      Block::run(config.gridDim, config.blockDim, index, config.dynamicSmemBytes, order, body);
    }
    ++runtime().kernels;
  });
  return cudaSuccess;
}

}  // namespace nought::emulation

using nought::emulation::failed;
using nought::emulation::runtime;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? nought::emulation::last_text.c_str() : cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() { return std::exchange(nought::emulation::last_error, cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = runtime().devices, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= runtime().devices) return failed(cudaErrorInvalidValue);
  nought::emulation::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = nought::emulation::current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 0x17 + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

// --- memory ---

cudaError_t cudaMalloc(void** address, size_t bytes) {
  using namespace nought::emulation;
  Runtime& here = runtime();
  const std::lock_guard lock(here.mutex);
  if (bytes > here.left) return failed(cudaErrorMemoryAllocation);
  const size_t inner = nought::round_up(nought::round_up(bytes, kAlignment), kPage);
  Allocation each{nullptr, inner + 2 * kPage, bytes, current_device};
  void* const mapped = mmap(nullptr, each.mapped_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (mapped == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  each.mapped = static_cast<std::byte*>(mapped);
  std::byte* const begin = each.mapped + kPage + inner - nought::round_up(bytes, kAlignment);
  mprotect(each.mapped, kPage, PROT_NONE);
  mprotect(each.mapped + kPage + inner, kPage, PROT_NONE);
  std::memset(each.mapped + kPage, static_cast<int>(kMargin), inner);
  std::memset(begin, static_cast<int>(kFresh), bytes);
  here.allocations[begin] = each;
  here.used += bytes;
  here.left -= bytes;
  *address = begin;
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  using namespace nought::emulation;
  Runtime& here = runtime();
  const auto device_of = [&] {
    const std::lock_guard lock(here.mutex);
    const auto found = here.allocations.find(static_cast<std::byte*>(address));
    return found == here.allocations.end() ? 0 : found->second.device;
  };
  wait_for_streams_of(device_of());
  const std::lock_guard lock(here.mutex);
  const auto found = here.allocations.find(static_cast<std::byte*>(address));
  if (found == here.allocations.end()) return failed(cudaErrorInvalidValue);
  check_margins_of(found->first, found->second);
  munmap(found->second.mapped, found->second.mapped_bytes);
  here.used -= found->second.bytes;
  here.left += found->second.bytes;
  here.allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned /*flags*/) {
  *address = std::aligned_alloc(nought::emulation::kPage, nought::round_up(bytes, nought::emulation::kPage));
  const std::lock_guard lock(runtime().mutex);
  runtime().pinned[static_cast<std::byte*>(*address)] = {bytes, nought::emulation::current_device};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  const auto device_of = [&] {
    const std::lock_guard lock(runtime().mutex);
    const auto found = runtime().pinned.find(static_cast<std::byte*>(address));
    return found == runtime().pinned.end() ? 0 : found->second.device;
  };
  nought::emulation::wait_for_streams_of(device_of());
  const std::lock_guard lock(runtime().mutex);
  if (runtime().pinned.erase(static_cast<std::byte*>(address)) == 0) return failed(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  attributes->type = nought::emulation::type_of(address);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(runtime().mutex);
  *free = runtime().left;
  *total = runtime().left + runtime().used;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  using nought::emulation::is_pageable;
  if (kind != cudaMemcpyDefault) return failed(cudaErrorInvalidValue);
  if (is_pageable(from)) {
    const auto* const begin = static_cast<const std::byte*>(from);
    stream->stream.submit(
        [to, kept = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(to, kept.data(), kept.size()); });
    return cudaSuccess;
  }
  const nought::Event copied = stream->stream.submit([=] { std::memcpy(to, from, bytes); });
  return is_pageable(to) ? nought::emulation::waited([&] { copied.wait(); }) : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  stream->stream.submit([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// --- streams and events ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st;
  (*stream)->device = nought::emulation::current_device;
  const std::lock_guard lock(runtime().streams_mutex);
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(runtime().streams_mutex);
    runtime().streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return nought::emulation::waited([&] { stream->stream.record().wait(); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  stream->stream.wait(event->event);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->keeps_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->at = std::make_shared<std::chrono::steady_clock::time_point>();
  event->event = stream->stream.submit([at = event->at] { *at = std::chrono::steady_clock::now(); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return nought::emulation::waited([&] { event->event.wait(); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return event->event.ready() ? cudaSuccess : failed(cudaErrorNotReady); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->at || !end->at || !begin->keeps_time || !end->keeps_time) return failed(cudaErrorInvalidValue);
  if (!begin->event.ready() || !end->event.ready()) return failed(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(*end->at - *begin->at).count();
  return cudaSuccess;
}
