// Where the ranks of a command compute: --device cpu, cuda (a GPU for each rank of a host) or cuda:N.
#pragma once

#include <string>

#include "nought/cli/launch.h"

namespace nought {

/// Adds --device and --collectives.
void add_device_option(CLI::App& command, LaunchOptions& options);

/// Whether --device names a GPU, which need not be there. ConfigError unless it is one of the names.
bool names_gpu(const std::string& name);

class DeviceChoice {
 public:
  using OnGpu = Context (*)(int number, bool is_rank);
  /// ConfigError unless `name` is one of them. DeviceError if it is a GPU's and the program has no CUDA.
  DeviceChoice(const std::string& name, OnGpu on_gpu);
  /// Fresh memory and kernels. DeviceError, with the reason, if there is no such GPU.
  Context context(int rank) const;

 private:
  OnGpu on_gpu_ = nullptr;  // null: on the CPU
  int number_ = -1;         // -1: by the rank
};

}  // namespace nought
