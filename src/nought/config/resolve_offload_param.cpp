// Where parameters are between the passes that read them: DeepSpeed's offload_param.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_offload_param() {
  const DsOffloadParam& section = ds_.zero_optimization.offload_param;
  const std::string path = "zero_optimization.offload_param.";
  const auto device = offload_device(path, section.device);
  if (device.value == "none") return;
  require<ConfigError>(plan_.zero_stage == 3,
                       "{} = \"{}\" takes zero_optimization.stage = 3, and it is {}, where every rank needs all "
                       "parameters: raise the stage, or write \"none\" (offload_optimizer works at every stage)",
                       device.place, device.value, plan_.zero_stage);
  if (device.value == "nvme") {
    plan_.resolved.push_back({"offload_param", "nvme", device.reason});
    return parameters_to_files();
  }
  plan_.offload_param.home = Pool::host;
  if (plan_.on_gpu) {
    plan_.resolved.push_back({"offload_param", "cpu", device.reason});
    note_pin_memory("offload_param.pin_memory", path, section.pin_memory);
  }
  warn_of_host_memory(device);
}

void Resolver::parameters_to_files() {
  const DsOffloadParam& section = ds_.zero_optimization.offload_param;
  const std::string path = "zero_optimization.offload_param.";
  ParameterHome& options = plan_.offload_param;
  options.home = Pool::file;
  options.folder = note("offload_param.nvme_path", offload_folder(path, section.nvme_path, "the parameters"));
  const auto number = [&](const std::string& key, const Setting<int64_t>& setting, int64_t least) {
    const auto value = section_value("deepspeed." + path + key, setting);
    require_at_least(value, least);
    return note("offload_param." + key, value);
  };
  options.buffers = number("buffer_count", section.buffer_count, 1);
  options.buffer_size = number("buffer_size", section.buffer_size, 1);
  options.in_memory = number("max_in_cpu", section.max_in_cpu, 0);
  note_pin_memory("offload_param.pin_memory", path, section.pin_memory);
}

}  // namespace nought
