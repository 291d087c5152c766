#include "nought/cuda/backend/runtime.h"

namespace nought::cuda {

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // else the next call would be blamed
  fail<DeviceError>("CUDA: {}: {} ({})", what, cudaGetErrorName(result), cudaGetErrorString(result));
}

std::string why_no_device() {
  int devices = 0, driver = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  if (result == cudaErrorInsufficientDriver && driver == 0) return "no driver: libcuda.so.1 is not there";
  if (result == cudaErrorInsufficientDriver)
    return fmt::format("the driver is for CUDA {}.{} and too old", driver / 1000, driver % 1000 / 10);
  if (result != cudaSuccess) return cudaGetErrorString(result);
  return devices == 0 ? "no device" : "";
}

}  // namespace nought::cuda
