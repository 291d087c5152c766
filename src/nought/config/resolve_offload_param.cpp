// Where parameters are between the passes that read them: DeepSpeed's offload_param.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// Keeps parameters in a file of each rank.
void parameters_to_files(Resolver& r) {
  const DsOffloadParam& section = r.ds.zero_optimization.offload_param;
  const std::string path = "zero_optimization.offload_param.";
  ParameterOffload& options = r.plan.layout.sharding.offload_param;
  options.tier.pool = Pool::file;
  options.tier.folder = r.note("offload_param.nvme_path", offload_folder(r, path, section.nvme_path, "the parameters"));
  const auto number = [&](const std::string& key, const Setting<int64_t>& setting, int64_t least) {
    const auto value = r.section_value("deepspeed." + path + key, setting);
    require_at_least(value, least);
    return r.note("offload_param." + key, value);
  };
  options.buffers = number("buffer_count", section.buffer_count, 1);
  options.buffer_size = number("buffer_size", section.buffer_size, 1);
  options.in_memory = number("max_in_cpu", section.max_in_cpu, 0);
  note_pin_memory(r, "offload_param.pin_memory", path, section.pin_memory);
}

}  // namespace

void resolve_offload_param(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  const DsOffloadParam& section = zero.offload_param;
  const std::string path = "zero_optimization.offload_param.";
  const auto device =
      offload_device(r, path, section.device,
                     {{"cpu_offload_param", zero.cpu_offload_param}, {"cpu_offload_params", zero.cpu_offload_params}});
  if (device.value == "none") return;
  if (!section.device.given() && r.plan.layout.zero_stage < 3)  // old files say it at every stage
    return r.warn(fmt::format("{} has no effect: below stage 3 every rank needs all parameters", written(device)));
  require<ConfigError>(r.plan.layout.zero_stage == 3,
                       "{} takes zero_optimization.stage = 3, and it is {}, where every rank needs all "
                       "parameters: raise the stage, or leave it out (offload_optimizer works at every stage)",
                       written(device), r.plan.layout.zero_stage);
  if (device.value == "nvme") {
    r.plan.resolved.push_back({"offload_param", "nvme", device.reason});
    return parameters_to_files(r);
  }
  r.plan.layout.sharding.offload_param.tier.pool = Pool::host;
  if (r.plan.layout.on_gpu()) {
    r.plan.resolved.push_back({"offload_param", "cpu", device.reason});
    note_pin_memory(r, "offload_param.pin_memory", path, section.pin_memory);
  }
  warn_of_host_memory(r, device);
}

}  // namespace nought
