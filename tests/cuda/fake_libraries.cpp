// Libraries of CUDA for the tests of what is found: each macro makes one, with the calls that are asked for.
#include <cstddef>
#include <cstdlib>
#include <cstring>

extern "C" {

#if defined(FAKE_DRIVER)
/// FAKE_CUDA_ERROR: what cuInit() returns.
int cuInit(unsigned /*flags*/) {
  const char* const error = std::getenv("FAKE_CUDA_ERROR");
  return error != nullptr ? std::atoi(error) : 0;
}
int cuGetErrorString(int error, const char** words) {
  *words = error == 100 ? "no CUDA-capable device is detected" : nullptr;
  return 0;
}
int cuDriverGetVersion(int* version) { return *version = 12080, 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGet(int* device, int number) { return *device = number + 7, 0; }
int cuDeviceGetName(char* name, int /*size*/, int device) {
  std::strcpy(name, device == 7 ? "First GPU" : "Second GPU");
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int /*device*/) { return *bytes = size_t{80} << 30, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) { return *value = attribute == 75 ? 9 : 0, 0; }
#elif defined(FAKE_NCCL)
int ncclGetVersion(int* version) { return *version = 22809, 0; }
#elif defined(FAKE_CUBLASLT)
size_t cublasLtGetVersion() { return 130100; }
#elif defined(FAKE_CUDNN)
int cudnn_without_its_version() { return 0; }
#endif
}
