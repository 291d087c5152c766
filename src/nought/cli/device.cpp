#include "nought/cli/device.h"

#include <charconv>
#include <optional>

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

namespace {

/// N of cuda:N, -1 of cuda; nothing for the CPU.
std::optional<int> gpu_of(const std::string& name) {
  if (name == "cpu") return std::nullopt;
  if (name == "cuda") return -1;
  constexpr std::string_view kNumbered = "cuda:";
  int number = -1;
  bool is_known = false;
  if (name.starts_with(kNumbered)) {
    const char *const begin = name.data() + kNumbered.size(), *const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(begin, end, number);
    is_known = error == std::errc() && stop == end && number >= 0;
  }
  require<ConfigError>(is_known, "--device {}: expected cpu, cuda or cuda:N", name);
  return number;
}

}  // namespace

bool names_gpu(const std::string& name) { return gpu_of(name).has_value(); }

DeviceChoice::DeviceChoice(const std::string& name, OnGpu on_gpu) {
  const std::optional<int> number = gpu_of(name);
  if (!number) return;
  number_ = *number;
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

}  // namespace nought
