// Where the ranks of a command compute: --device cpu, cuda (a GPU for each rank of a host) or cuda:N.
#pragma once

#include <string>

#include "nought/cli/launch.h"
#include "nought/config/run_plan.h"

namespace nought {

/// Adds --device and --collectives.
void add_device_option(CLI::App& command, LaunchOptions& options);

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

/// ConfigError that names what a plan asks for and no GPU can do yet.
void require_runs_on(const Context& context, const RunPlan& plan);

}  // namespace nought
