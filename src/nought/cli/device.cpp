#include "nought/cli/device.h"

#include <charconv>

namespace nought {

void add_device_option(CLI::App& command, LaunchOptions& options) {
  command
      .add_option("--device", options.device,
                  "Where ranks compute: cpu, cuda (each rank of a host on a GPU of its own) or cuda:N")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option(
          "--collectives", options.collectives,
          "How tensors travel between GPUs: auto (by NCCL if each rank has one of its own), nccl, nccl-sums (it "
          "adds too, in an order of its own) or host")
      ->type_name("NAME")
      ->capture_default_str();
}

DeviceChoice::DeviceChoice(const std::string& name, OnGpu on_gpu) {
  if (name == "cpu") return;
  constexpr std::string_view kNumbered = "cuda:";
  bool is_known = name == "cuda";
  if (name.starts_with(kNumbered)) {
    const char *const begin = name.data() + kNumbered.size(), *const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(begin, end, number_);
    is_known = error == std::errc() && stop == end && number_ >= 0;
  }
  require<ConfigError>(is_known, "--device {}: expected cpu, cuda or cuda:N", name);
  require<DeviceError>(on_gpu != nullptr,
                       "--device {}: this program was built without CUDA; build it with -DNOUGHT_CUDA=ON, or leave out "
                       "--device",
                       name);
  on_gpu_ = on_gpu;
}

Context DeviceChoice::context(int rank) const {
  if (on_gpu_ == nullptr) return Context::cpu();
  return number_ >= 0 ? on_gpu_(number_, /*is_rank=*/false) : on_gpu_(rank, /*is_rank=*/true);
}

void require_runs_on(const Context& context, const RunPlan& plan) {
  const Device& device = context.memory->device();
  if (device.is_host()) return;
  const auto refuse = [&](bool asked, std::string_view what) {
    require<ConfigError>(!asked, "--device {}: {} is not there for GPUs yet; leave it out, or run on the CPU",
                         device.name(), what);
  };
  refuse(plan.offload_optimizer.home != Pool::device, "deepspeed.zero_optimization.offload_optimizer");
  refuse(plan.offload_param.home != Pool::device, "deepspeed.zero_optimization.offload_param");
  refuse(plan.offload_optimizer.delay_after.has_value(), "training.delayed_update");
}

}  // namespace nought
