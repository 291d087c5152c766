#include "nought/cuda/facts.h"

#include <array>

#include "nought/base/error.h"

namespace nought::cuda {

namespace {

/// What a library gives, or the reason in `missing` why it gives nothing.
template <class Ask>
LibraryFacts ask(std::string name, const std::vector<std::string>& sonames, const LibrarySearch& search, Ask&& ask) {
  LibraryFacts facts{.name = std::move(name)};
  try {
    const Library library(sonames, search);
    facts.path = library.path();
    facts.version = ask(library);
  } catch (const Error& error) {
    facts.missing = error.what();
  }
  return facts;
}

/// Functions of the driver return 0, or a number that it has words for.
void check(const Library& driver, int result, const char* call) {
  if (result == 0) return;
  const char* words = nullptr;
  driver.function<int(int, const char**)>("cuGetErrorString")(result, &words);
  fail<DeviceError>("{}: {} ({})", call, words != nullptr ? words : "an unknown error", result);
}

DeviceFacts device_of(const Library& driver, int number) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int device = 0;
  check(driver, driver.function<int(int*, int)>("cuDeviceGet")(&device, number), "cuDeviceGet");
  std::array<char, 256> name{};
  check(driver, driver.function<int(char*, int, int)>("cuDeviceGetName")(name.data(), name.size(), device),
        "cuDeviceGetName");
  size_t bytes = 0;
  check(driver, driver.function<int(size_t*, int)>("cuDeviceTotalMem_v2")(&bytes, device), "cuDeviceTotalMem");
  DeviceFacts facts{.name = name.data(), .memory_bytes = static_cast<int64_t>(bytes)};
  auto* const attribute = driver.function<int(int*, int, int)>("cuDeviceGetAttribute");
  check(driver, attribute(&facts.major, kMajor, device), "cuDeviceGetAttribute");
  check(driver, attribute(&facts.minor, kMinor, device), "cuDeviceGetAttribute");
  return facts;
}

std::vector<DeviceFacts> devices_of(const Library& driver) {
  check(driver, driver.function<int(unsigned)>("cuInit")(0), "cuInit");
  int count = 0;
  check(driver, driver.function<int(int*)>("cuDeviceGetCount")(&count), "cuDeviceGetCount");
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < count; ++i) devices.push_back(device_of(driver, i));
  return devices;
}

}  // namespace

CudaFacts find_cuda(const LibrarySearch& search) {
  CudaFacts facts;
  facts.driver = ask("CUDA driver", {"libcuda.so.1"}, search, [&](const Library& driver) {
    int version = 0;
    check(driver, driver.function<int(int*)>("cuDriverGetVersion")(&version), "cuDriverGetVersion");
    try {
      facts.devices = devices_of(driver);
      if (facts.devices.empty()) facts.no_devices = "the driver has none";
    } catch (const Error& error) {
      facts.no_devices = error.what();
    }
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  });
  if (!facts.driver.missing.empty()) facts.no_devices = "there is no driver";
  const auto version_by = [](const char* function) {
    return [function](const Library& library) { return version_text(library.function<size_t()>(function)()); };
  };
  facts.libraries.push_back(
      ask("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, search, version_by("cublasLtGetVersion")));
  facts.libraries.push_back(ask("cuDNN", {"libcudnn.so.9"}, search, version_by("cudnnGetVersion")));
  facts.libraries.push_back(ask("NCCL", {"libnccl.so.2"}, search, [](const Library& library) {
    int version = 0;
    const int result = library.function<int(int*)>("ncclGetVersion")(&version);
    require<DeviceError>(result == 0, "ncclGetVersion: error {}", result);
    return version_text(static_cast<size_t>(version));
  }));
  return facts;
}

}  // namespace nought::cuda
