// Where masters and optimizer states are between updates: DeepSpeed's offload_optimizer and sub_group_size.
#include <algorithm>

#include "nought/config/resolve_steps.h"
#include "nought/config/run_traits.h"

namespace nought {

namespace {

int64_t elements_of_tile(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  constexpr int64_t kMost = OffloadOptions::kMostElements;
  Candidate<int64_t> tile{kMost, false, "", "default"};
  if (zero.sub_group_size.given()) {
    tile = r.deepspeed("zero_optimization.sub_group_size", zero.sub_group_size.value);
    require_at_least<int64_t>(tile, 1);
    if (tile.value > kMost) tile.reason += fmt::format(" = {}; more than this only takes memory", tile.value);
    tile.value = std::min(tile.value, kMost);
  }
  return r.note("sub_group_size", tile);
}

double share_that_moves(Resolver& r) {
  const DsOffloadOptimizer& section = r.ds.zero_optimization.offload_optimizer;
  const auto ratio = r.section_value("deepspeed.zero_optimization.offload_optimizer.ratio", section.ratio);
  require<ConfigError>(0 <= ratio.value && ratio.value <= 1, "{}: expected a number in [0, 1], got {}", ratio.place,
                       ratio.value);
  return ratio.given ? r.note("ratio", ratio) : ratio.value;
}

/// Keeps the optimizer's states in memory of the host, which makes the update there.
void offload_from_gpu(Resolver& r, const Candidate<std::string>& device) {
  const std::string path = "zero_optimization.offload_optimizer.";
  r.plan.resolved.push_back({"offload_optimizer", "cpu", device.reason});
  r.plan.layout.sharding.offload_optimizer.sub_group = elements_of_tile(r);
  r.plan.layout.sharding.offload_optimizer.ratio = share_that_moves(r);
  note_pin_memory(r, "pin_memory", path, r.ds.zero_optimization.offload_optimizer.pin_memory);
}

/// Keeps the optimizer's states in a file of each rank.
void offload_to_files(Resolver& r) {
  const DsOffloadOptimizer& section = r.ds.zero_optimization.offload_optimizer;
  OffloadOptions& options = r.plan.layout.sharding.offload_optimizer;
  const std::string path = "zero_optimization.offload_optimizer.";
  options.tier.pool = Pool::file;
  options.tier.folder = r.note("nvme_path", offload_folder(r, path, section.nvme_path, "the optimizer's states"));

  options.sub_group = elements_of_tile(r);

  const auto buffers = r.section_value("deepspeed." + path + "buffer_count", section.buffer_count);
  require<ConfigError>(buffers.value >= OffloadOptions::kLeastBuffers,
                       "{} = {}: a tile takes {} buffers, for parameter, gradient and states: write {} or more",
                       buffers.place, buffers.value, OffloadOptions::kLeastBuffers, OffloadOptions::kLeastBuffers);
  options.buffers = buffers.value;
  options.reads_ahead =
      r.note("pipeline_read", r.section_value("deepspeed." + path + "pipeline_read", section.pipeline_read));
  options.writes_behind =
      r.note("pipeline_write", r.section_value("deepspeed." + path + "pipeline_write", section.pipeline_write));
  const int64_t wanted = options.tiles_asked_for();
  r.plan.resolved.push_back({"tiles_in_memory", fmt::format("{}", options.tiles()),
                             options.tiles() == wanted
                                 ? fmt::format("one is updated{}{}", options.reads_ahead ? ", one is read" : "",
                                               options.writes_behind ? ", one is written" : "")
                                 : fmt::format("buffer_count = {} has room for no more: {} tiles take {}",
                                               options.buffers, wanted, wanted * OffloadOptions::kLeastBuffers)});
  options.ratio = share_that_moves(r);
  note_pin_memory(r, "pin_memory", path, section.pin_memory);
}

}  // namespace

Candidate<std::string> offload_device(const Resolver& r, const std::string& path, const Auto<std::string>& setting,
                                      std::initializer_list<OlderName> older) {
  for (const OlderName& name : older) {
    if (!name.setting.value) continue;
    auto device = r.deepspeed<std::string>(fmt::format("zero_optimization.{}", name.key), "cpu");
    require<ConfigError>(!setting.given() || setting.value == device.value,
                         "{} = true contradicts {}device = \"{}\": leave the older name out", device.place, path,
                         setting.value);
    return device;
  }
  if (!setting.given()) return {"none", false, "", ""};
  const auto device = r.deepspeed(path + "device", setting.value);
  require<ConfigError>(device.value == "none" || device.value == "cpu" || device.value == "nvme",
                       "{} = \"{}\": expected \"none\", \"cpu\" or \"nvme\"", device.place, device.value);
  return device;
}

std::string written(const Candidate<std::string>& device) {
  const bool older = !device.place.ends_with("device");
  return older ? device.place + " = true" : fmt::format("{} = \"{}\"", device.place, device.value);
}

Candidate<std::string> offload_folder(const Resolver& r, const std::string& path, const Setting<std::string>& setting,
                                      const char* what) {
  require<ConfigError>(setting.given && !setting.value.empty() && setting.value != "none",
                       "{} = \"nvme\" without nvme_path: name a folder on the drive that is to hold {} in {}nvme_path",
                       r.origins.place("deepspeed." + path + "device"), what, path);
  return r.deepspeed(path + "nvme_path", setting.value);
}

void warn_of_host_memory(Resolver& r, const Candidate<std::string>& device) {
  if (r.plan.layout.on_gpu()) return;
  r.warn(fmt::format("{} has no effect: parameters and states already live in host memory: no copy is made",
                     written(device)));
}

void note_pin_memory(Resolver& r, const std::string& name, const std::string& path, const Setting<bool>& setting) {
  if (!setting.given) return;
  const char* const why = r.plan.layout.on_gpu() ? "without effect, what a GPU copies from or to is always pinned"
                                                 : "without effect, no device reads pages of the host";
  r.plan.resolved.push_back(
      {name, setting.value ? "true" : "false", fmt::format("deepspeed: {}pin_memory; {}", path, why)});
}

void resolve_offload(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  const DsOffloadOptimizer& section = zero.offload_optimizer;
  const std::string path = "zero_optimization.offload_optimizer.";
  const auto device = offload_device(r, path, section.device, {{"cpu_offload", zero.cpu_offload}});
  if (device.value == "nvme") {
    r.plan.resolved.push_back({"offload_optimizer", "nvme", device.reason});
    return offload_to_files(r);
  }
  if (device.value == "cpu") {
    r.plan.layout.sharding.offload_optimizer.tier.pool = Pool::host;
    if (r.plan.layout.on_gpu()) return offload_from_gpu(r, device);
    warn_of_host_memory(r, device);
  }
  if (section.ratio.given && section.ratio.value != 1)
    r.warn(fmt::format("{} = {} has no effect: no optimizer states leave the device",
                       r.origins.place("deepspeed." + path + "ratio"), section.ratio.value));
  if (zero.sub_group_size.given() && zero.sub_group_size.value != 1'000'000'000)
    r.warn(
        fmt::format("{} = {} has no effect: no optimizer states are kept in files, and the update runs over one Unit's "
                    "shard after the other",
                    r.origins.place("deepspeed.zero_optimization.sub_group_size"), zero.sub_group_size.value));
}

void resolve_delayed_update(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto delayed = r.training("delayed_update", t.delayed_update);
  const auto warmup = r.training("delayed_update_warmup_steps", t.delayed_update_warmup_steps);
  if (!delayed.value) {
    if (warmup.given) r.warn(fmt::format("{} has no effect without training.delayed_update", warmup.place));
    return;
  }
  require<ConfigError>(
      !gives_direction(r.plan.layout.sharding.optimizer.method),
      "{} = true with {}: its update needs norms or matrices of whole parameters, for which ranks "
      "talk to each other, and cannot run overlapped with their passes; use another optimizer, or leave "
      "updates where they are",
      delayed.place, std::holds_alternative<LambOptions>(r.plan.layout.sharding.optimizer.method) ? "Lamb" : "Muon");
  r.note("delayed_update", delayed);
  require_at_least<int64_t>(warmup, 0);
  r.plan.layout.sharding.offload_optimizer.delay_after = r.note("delayed_update_warmup_steps", warmup);
}

/// Sums of gradients lie beside the optimizer's states where that costs no bits and the user keeps nothing in memory.
void resolve_gradient_tier(Resolver& r) {
  OffloadOptions& options = r.plan.layout.sharding.offload_optimizer;
  const Auto<std::string>& key = r.config.training.offload_gradients;
  const auto tier = r.section_value("training.offload_gradients", key.given() ? key.value : "auto", key.given());
  require<ConfigError>(tier.value == "auto" || tier.value == "device" || tier.value == "file",
                       "{} = \"{}\": expected \"auto\", \"device\" or \"file\"", tier.place, tier.value);
  const std::string why_not =
      options.tier.pool != Pool::file ? "no optimizer states are in files: set offload_optimizer.device to \"nvme\""
      : r.plan.layout.sharding.sparse_pruning ? "gradients of pruned weights are taken away in memory"
      : options.ratio < 1   ? "tiles that stay on the device read them there (offload_optimizer.ratio is below 1)"
      : options.delay_after ? "a delayed update has set those of the step before aside in memory"
      : r.plan.layout.replicas > 1 ? "replicas add theirs to them when a step ends"
      : r.plan.layout.zero_stage < 2 && r.plan.layout.token_ranks() > 1
          ? fmt::format("every rank adds up whole gradients at stage {}: take stage 2 or 3", r.plan.layout.zero_stage)
          : "";
  require<ConfigError>(tier.value != "file" || why_not.empty(), "{} = \"file\": {}", tier.place, why_not);
  r.plan.layout.gradients_stay = tier.value == "device";
  if (options.tier.pool != Pool::file) return;
  const bool all = has(r.plan, Trait::files_alone);
  options.gradients_in_file = tier.value == "file" || (tier.value == "auto" && all && why_not.empty());
  const std::string why = tier.given && tier.value != "auto" ? tier.reason
                          : !why_not.empty()                 ? why_not
                          : all                              ? "parameters and optimizer states are in files, too"
                                : "parameters stay in memory; training.offload_gradients = \"file\" saves it";
  r.plan.resolved.push_back({"offload_gradients", options.gradients_in_file ? "file" : "device", why});
}

namespace {

/// Why no update can be made before the passes end; "" if some can.
std::string against_early_update(const Resolver& r) {
  const RunPlan& plan = r.plan;
  const Layout& layout = plan.layout;
  const OffloadOptions& options = layout.sharding.offload_optimizer;
  const Method& method = layout.sharding.optimizer.method;
  const auto refused = first_refused(
      plan, {{Trait::delays_updates, "updates run overlapped with the next step instead"},
             {Trait::files_alone, "parameters that are in files are brought and written between two passes"}});
  if (refused) return std::string(refused->what);
  if (talks_to_ranks(method) && !std::holds_alternative<MuonOptions>(method))
    return "ranks talk to each other for updates of Lamb and of 1-bit optimizers";
  if (layout.sharding.sparse_pruning) return "gradients of pruned weights are taken away when all are there";
  if (r.config.training.async_data_parallel.staleness.given) return "servers make updates";
  if (layout.on_gpu() && options.tier.pool == Pool::device)
    return "states are in the memory of the GPU, which is at work";
  if (layout.on_gpu() && options.ratio < 1) return "tiles that stay on the GPU (offload_optimizer.ratio is below 1)";
  return "";
}

/// What such an update guesses; "" if nothing stands before it.
std::string guessed(const RunPlan& plan) {
  std::string all;
  for (const auto& [trait, what] : {std::pair(Trait::clips_gradients, "the norm stays below max_grad_norm"),
                                    {Trait::scales_loss, "no gradient overflows"},
                                    {Trait::skips_nonfinite, "all gradients are finite"},
                                    {Trait::repeats_spikes, "the step is no spike"}})
    if (has(plan, trait)) all += (all.empty() ? "" : ", ") + std::string(what);
  return all;
}

}  // namespace

/// An update may begin as gradients arrive, if what is known at their end can not change it, or can undo it.
void resolve_early_update(Resolver& r) {
  OffloadOptions& options = r.plan.layout.sharding.offload_optimizer;
  const Auto<bool>& setting = r.config.training.update_beside_backward;
  const auto key =
      r.section_value("training.update_beside_backward", setting.value, setting.given() || setting.automatic());
  const std::string against = against_early_update(r), guess = guessed(r.plan);
  require<ConfigError>(!setting.given() || !key.value || against.empty(), "{} = true: {}", key.place, against);
  const bool on_host = r.plan.layout.on_gpu() && options.tier.pool == Pool::host;
  const bool pays = options.tier.pool == Pool::file || on_host;
  // The host's memory is known to hold states twice where a budget says so.
  const bool has_room = options.tier.pool == Pool::file || guess.empty() || r.config.training.host_memory.given;
  options.early = against.empty() && (setting.given() ? key.value : pays && has_room);
  r.plan.update_fits_room = options.early && !setting.given();
  options.undo = options.early && !guess.empty();
  if (!pays && !key.given) return;
  std::string why =
      !against.empty() ? against
      : !pays          ? "states are in memory: an update waits for nothing that passes could hide"
      : guess.empty()  ? "nothing global stands before an update"
      : options.early
          ? fmt::format(
                "it is a guess that {}; a wrong one is undone, for which states have "
                "their room twice",
                guess)
          : "undoing a wrong guess takes states on the host twice: true allows it, and training.host_memory if it fits";
  if (setting.given()) why = fmt::format("{}{}", key.reason, options.undo ? "; " + why : "");
  r.plan.resolved.push_back({"update_beside_backward", options.early ? "true" : "false", why});
}

}  // namespace nought
