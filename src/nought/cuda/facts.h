// What a machine has of CUDA: the driver, its devices, and the libraries, each with its version or with the reason why
// it cannot be used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/cuda/library.h"

namespace nought::cuda {

/// A library. One of `version` and `missing` is set.
struct LibraryFacts {
  std::string name;          // "cuBLASLt"
  std::string version = {};  // "13.1.0"
  std::string path = {};
  std::string missing = {};  // the reason
};

struct DeviceFacts {
  std::string name = {};
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
};

struct CudaFacts {
  LibraryFacts driver;  // its version is that of the CUDA that it serves
  std::vector<DeviceFacts> devices;
  std::string no_devices;  // why there is none
  std::vector<LibraryFacts> libraries;
};

/// Asks the machine. Loads what it finds; never throws for what is missing.
CudaFacts find_cuda(const LibrarySearch& search);

}  // namespace nought::cuda
