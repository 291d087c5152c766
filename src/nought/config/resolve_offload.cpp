// Where masters and optimizer states are between updates: DeepSpeed's offload_optimizer and sub_group_size.
#include <algorithm>

#include "nought/config/resolver.h"

namespace nought {

Candidate<std::string> Resolver::offload_device(const std::string& path, const Auto<std::string>& setting,
                                                std::initializer_list<OlderName> older) const {
  for (const OlderName& name : older) {
    if (!name.setting.value) continue;
    auto device = deepspeed<std::string>(fmt::format("zero_optimization.{}", name.key), "cpu");
    require<ConfigError>(!setting.given() || setting.value == device.value,
                         "{} = true contradicts {}device = \"{}\": leave the older name out", device.place, path,
                         setting.value);
    return device;
  }
  if (!setting.given()) return {"none", false, "", ""};
  const auto device = deepspeed(path + "device", setting.value);
  require<ConfigError>(device.value == "none" || device.value == "cpu" || device.value == "nvme",
                       "{} = \"{}\": expected \"none\", \"cpu\" or \"nvme\"", device.place, device.value);
  return device;
}

std::string Resolver::written(const Candidate<std::string>& device) {
  const bool older = !device.place.ends_with("device");
  return older ? device.place + " = true" : fmt::format("{} = \"{}\"", device.place, device.value);
}

Candidate<std::string> Resolver::offload_folder(const std::string& path, const Setting<std::string>& setting,
                                                const char* what) const {
  require<ConfigError>(setting.given && !setting.value.empty() && setting.value != "none",
                       "{} = \"nvme\" without nvme_path: name a folder on the drive that is to hold {} in {}nvme_path",
                       origins_.place("deepspeed." + path + "device"), what, path);
  return deepspeed(path + "nvme_path", setting.value);
}

void Resolver::warn_of_host_memory(const Candidate<std::string>& device) {
  if (plan_.layout.on_gpu()) return;
  warn(fmt::format("{} has no effect: parameters and states already live in host memory: no copy is made",
                   written(device)));
}

void Resolver::note_pin_memory(const std::string& name, const std::string& path, const Setting<bool>& setting) {
  if (!setting.given) return;
  const char* const why = plan_.layout.on_gpu() ? "without effect, what a GPU copies from or to is always pinned"
                                                : "without effect, no device reads pages of the host";
  plan_.resolved.push_back(
      {name, setting.value ? "true" : "false", fmt::format("deepspeed: {}pin_memory; {}", path, why)});
}

void Resolver::resolve_offload() {
  const DsZero& zero = ds_.zero_optimization;
  const DsOffloadOptimizer& section = zero.offload_optimizer;
  const std::string path = "zero_optimization.offload_optimizer.";
  const auto device = offload_device(path, section.device, {{"cpu_offload", zero.cpu_offload}});
  if (device.value == "nvme") {
    plan_.resolved.push_back({"offload_optimizer", "nvme", device.reason});
    return offload_to_files();
  }
  if (device.value == "cpu") {
    plan_.layout.sharding.offload_optimizer.tier.pool = Pool::host;
    if (plan_.layout.on_gpu()) return offload_beside_gpu(device);
    warn_of_host_memory(device);
  }
  if (section.ratio.given && section.ratio.value != 1)
    warn(fmt::format("{} = {} has no effect: no optimizer states leave the device",
                     origins_.place("deepspeed." + path + "ratio"), section.ratio.value));
  if (zero.sub_group_size.given() && zero.sub_group_size.value != 1'000'000'000)
    warn(
        fmt::format("{} = {} has no effect: no optimizer states are kept in files, and the update runs over one Unit's "
                    "shard after the other",
                    origins_.place("deepspeed.zero_optimization.sub_group_size"), zero.sub_group_size.value));
}

int64_t Resolver::elements_of_tile() {
  const DsZero& zero = ds_.zero_optimization;
  constexpr int64_t kMost = OffloadOptions::kMostElements;
  Candidate<int64_t> tile{kMost, false, "", "default"};
  if (zero.sub_group_size.given()) {
    tile = deepspeed("zero_optimization.sub_group_size", zero.sub_group_size.value);
    require_at_least<int64_t>(tile, 1);
    if (tile.value > kMost) tile.reason += fmt::format(" = {}; more than this only takes memory", tile.value);
    tile.value = std::min(tile.value, kMost);
  }
  return note("sub_group_size", tile);
}

double Resolver::share_that_moves() {
  const DsOffloadOptimizer& section = ds_.zero_optimization.offload_optimizer;
  const auto ratio = section_value("deepspeed.zero_optimization.offload_optimizer.ratio", section.ratio);
  require<ConfigError>(0 <= ratio.value && ratio.value <= 1, "{}: expected a number in [0, 1], got {}", ratio.place,
                       ratio.value);
  return ratio.given ? note("ratio", ratio) : ratio.value;
}

/// States in memory of the host, which makes the update there.
void Resolver::offload_beside_gpu(const Candidate<std::string>& device) {
  const std::string path = "zero_optimization.offload_optimizer.";
  plan_.resolved.push_back({"offload_optimizer", "cpu", device.reason});
  plan_.layout.sharding.offload_optimizer.sub_group = elements_of_tile();
  plan_.layout.sharding.offload_optimizer.ratio = share_that_moves();
  note_pin_memory("pin_memory", path, ds_.zero_optimization.offload_optimizer.pin_memory);
}

void Resolver::offload_to_files() {
  const DsOffloadOptimizer& section = ds_.zero_optimization.offload_optimizer;
  OffloadOptions& options = plan_.layout.sharding.offload_optimizer;
  const std::string path = "zero_optimization.offload_optimizer.";
  options.tier.pool = Pool::file;
  options.tier.folder = note("nvme_path", offload_folder(path, section.nvme_path, "the optimizer's states"));

  options.sub_group = elements_of_tile();

  const auto buffers = section_value("deepspeed." + path + "buffer_count", section.buffer_count);
  require<ConfigError>(buffers.value >= OffloadOptions::kLeastBuffers,
                       "{} = {}: a tile takes {} buffers, for parameter, gradient and states: write {} or more",
                       buffers.place, buffers.value, OffloadOptions::kLeastBuffers, OffloadOptions::kLeastBuffers);
  options.buffers = buffers.value;
  options.reads_ahead =
      note("pipeline_read", section_value("deepspeed." + path + "pipeline_read", section.pipeline_read));
  options.writes_behind =
      note("pipeline_write", section_value("deepspeed." + path + "pipeline_write", section.pipeline_write));
  const int64_t wanted = options.tiles_asked_for();
  plan_.resolved.push_back({"tiles_in_memory", fmt::format("{}", options.tiles()),
                            options.tiles() == wanted
                                ? fmt::format("one is updated{}{}", options.reads_ahead ? ", one is read" : "",
                                              options.writes_behind ? ", one is written" : "")
                                : fmt::format("buffer_count = {} has room for no more: {} tiles take {}",
                                              options.buffers, wanted, wanted * OffloadOptions::kLeastBuffers)});
  options.ratio = share_that_moves();
  note_pin_memory("pin_memory", path, section.pin_memory);
}

void Resolver::resolve_delayed_update() {
  const TrainingConfig& t = config_.training;
  const auto delayed = training("delayed_update", t.delayed_update);
  const auto warmup = training("delayed_update_warmup_steps", t.delayed_update_warmup_steps);
  if (!delayed.value) {
    if (warmup.given) warn(fmt::format("{} has no effect without training.delayed_update", warmup.place));
    return;
  }
  require<ConfigError>(!gives_direction(plan_.layout.sharding.optimizer.method),
                       "{} = true with {}: its update needs norms or matrices of whole parameters, for which ranks "
                       "talk to each other, and cannot run beside their passes; use another optimizer, or leave "
                       "updates where they are",
                       delayed.place,
                       std::holds_alternative<LambOptions>(plan_.layout.sharding.optimizer.method) ? "Lamb" : "Muon");
  note("delayed_update", delayed);
  require_at_least<int64_t>(warmup, 0);
  plan_.layout.sharding.offload_optimizer.delay_after = note("delayed_update_warmup_steps", warmup);
}

/// Sums of gradients lie beside the optimizer's states where that costs no bits and the user keeps nothing in memory.
void Resolver::resolve_gradient_home() {
  OffloadOptions& options = plan_.layout.sharding.offload_optimizer;
  const Auto<std::string>& key = config_.training.offload_gradients;
  const auto home = section_value("training.offload_gradients", key.given() ? key.value : "auto", key.given());
  require<ConfigError>(home.value == "auto" || home.value == "device" || home.value == "file",
                       "{} = \"{}\": expected \"auto\", \"device\" or \"file\"", home.place, home.value);
  const std::string why_not =
      options.tier.pool != Pool::file ? "no optimizer states are in files: set offload_optimizer.device to \"nvme\""
      : options.ratio < 1         ? "tiles that stay on the device read them there (offload_optimizer.ratio is below 1)"
      : options.delay_after       ? "a delayed update has set those of the step before aside in memory"
      : plan_.layout.replicas > 1 ? "replicas add theirs to them when a step ends"
      : plan_.layout.zero_stage < 2 && plan_.layout.token_ranks() > 1
          ? fmt::format("every rank adds up whole gradients at stage {}: take stage 2 or 3", plan_.layout.zero_stage)
          : "";
  require<ConfigError>(home.value != "file" || why_not.empty(), "{} = \"file\": {}", home.place, why_not);
  plan_.layout.gradients_stay = home.value == "device";
  if (options.tier.pool != Pool::file) return;
  const ParameterOffload& parameters = plan_.layout.sharding.offload_param;
  const bool all = parameters.tier.pool == Pool::file && parameters.in_memory == 0;
  options.gradients_in_file = home.value == "file" || (home.value == "auto" && all && why_not.empty());
  const std::string why = home.given && home.value != "auto" ? home.reason
                          : !why_not.empty()                 ? why_not
                          : all                              ? "parameters and optimizer states are in files, too"
                                : "parameters stay in memory; training.offload_gradients = \"file\" saves it";
  plan_.resolved.push_back({"offload_gradients", options.gradients_in_file ? "file" : "device", why});
}

/// What nothing that is known at the end of the backward pass alone can change may be updated before.
void Resolver::resolve_early_update() {
  OffloadOptions& options = plan_.layout.sharding.offload_optimizer;
  const char* const awaited = options.delay_after           ? "updates run beside the next step instead"
                              : plan_.gradient_clipping > 0 ? "clipping needs the norm of all gradients first"
                              : plan_.loss_scale            ? "a loss scale needs all gradients first"
                              : plan_.spiky_loss_factor > 0 ? "a spiky step is computed again before its update"
                              : plan_.on_nonfinite == OnNonfinite::skip
                                  ? "on_nonfinite = \"skip\" needs all gradients first"
                              : plan_.layout.sharding.offload_param.tier.pool == Pool::file &&
                                      plan_.layout.sharding.offload_param.in_memory == 0
                                  ? "parameters that are in files are brought and written between two passes"
                                  : nullptr;
  options.early = awaited == nullptr;
  if (options.tier.pool != Pool::file && !(plan_.layout.on_gpu() && options.tier.pool == Pool::host)) return;
  plan_.resolved.push_back({"update_beside_backward", options.early ? "true" : "false",
                            options.early ? "nothing global stands before an update" : awaited});
}

}  // namespace nought
