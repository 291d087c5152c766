// The runtime of CUDA without a GPU: as much of cuda_runtime.h as src/nought/cuda uses, under the same names.
//
// Streams run as late as they can: work runs when somebody waits for it. Fresh memory is NaN. Behind and before each
// allocation lies a page that nobody may touch. A mistake of a kernel is the failure of its stream, with its text as
// cudaGetErrorString(). tests/cuda_emulation/control.h sets what a test chooses.
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "cuda_emulation/device_code.h"
#include "cuda_emulation/tensor_cores.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0;
inline constexpr unsigned cudaEventDefault = 0;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
};

struct dim3 : nought::emulation::Size {
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : Size{nx, ny, nz} {}
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);

cudaError_t cudaMalloc(void** address, size_t bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* address);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace nought::emulation {
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> body);
/// The dynamic shared memory that a kernel may be launched with: 48 KiB unless it was allowed more.
cudaError_t allow_dynamic(const void* kernel, size_t bytes);
cudaError_t check_dynamic(const void* kernel, size_t bytes);
}  // namespace nought::emulation

template <class... Arguments>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Arguments...), cudaFuncAttribute /*attribute*/, int value) {
  return nought::emulation::allow_dynamic(reinterpret_cast<const void*>(kernel), static_cast<size_t>(value));
}

/// The arguments are copied now, as on a GPU.
template <class... Expected, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Given&&... given) {
  if (const cudaError_t refused =
          nought::emulation::check_dynamic(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes);
      refused != cudaSuccess)
    return refused;
  return nought::emulation::launch(
      *config,
      [kernel, arguments = std::tuple<Expected...>(std::forward<Given>(given)...)] { std::apply(kernel, arguments); });
}
