// What the backward pass computes again, and how what it starts from is kept: training.recompute and DeepSpeed's
// activation_checkpointing.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_recompute() {
  auto mode = training("recompute", config_.training.recompute);
  const auto whole = training("gradient_checkpointing", config_.training.gradient_checkpointing);
  require<ConfigError>(!mode.given || !whole.given || whole.value == (mode.value == Recompute::full),
                       "{} = {} contradicts {} = \"{}\": give one of them", whole.place, whole.value, mode.place,
                       name_of(mode.value));
  if (!mode.given && whole.given)
    mode = {whole.value ? Recompute::full : Recompute::none, true, whole.place, whole.reason};
  plan_.layout.recompute = mode.value;
  plan_.resolved.push_back({"recompute", std::string(name_of(mode.value)), mode.reason});
  const auto fp8 = training("recompute_fp8", config_.training.recompute_fp8);
  if (fp8.value && plan_.layout.recompute.mode == Recompute::full)
    plan_.layout.recompute.fp8 = note("recompute_fp8", fp8);
  else if (fp8.value)
    warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"", fp8.place,
                     name_of(plan_.layout.recompute.mode)));
  resolve_checkpoint_interval();
  resolve_checkpoints();
  resolve_tiles();
}

void Resolver::resolve_tiles() {
  const Auto<int64_t>& key = config_.training.tiled_mlp;
  if (!key.given() && !key.automatic()) return;
  const auto tiles = section_value("training.tiled_mlp", key.value, true);
  if (key.automatic()) {
    plan_.layout.recompute.mlp_tiles = 0;
    plan_.resolved.push_back({"tiled_mlp", "auto", tiles.reason + ": tokens of a rank / hidden size"});
    return;
  }
  require_at_least<int64_t>(tiles, 1);
  plan_.layout.recompute.mlp_tiles = note("tiled_mlp", tiles);
}

/// DeepSpeed's section says how to checkpoint, not whether: a model's code, or the Trainer's argument, says that.
void Resolver::resolve_checkpoints() {
  const DsActivationCheckpointing& section = ds_.activation_checkpointing;
  const std::string path = "activation_checkpointing.";
  const auto used = [&](const char* key, bool given) {
    if (!given) return false;
    if (plan_.layout.recompute.mode == Recompute::full) return true;
    warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"",
                     origins_.place("deepspeed." + path + key), name_of(plan_.layout.recompute.mode)));
    return false;
  };
  if (used("number_checkpoints", section.number_checkpoints.given)) {
    const auto count = deepspeed(path + "number_checkpoints", section.number_checkpoints.value);
    require_at_least<int64_t>(count, 1);
    plan_.layout.recompute.checkpoints = note("number_checkpoints", count);
  }
  if (used("cpu_checkpointing", section.cpu_checkpointing.value))
    note("cpu_checkpointing", deepspeed(path + "cpu_checkpointing", true));
  resolve_input_home();
  if (used("contiguous_memory_optimization", section.contiguous_memory_optimization.value)) {
    const auto contiguous = deepspeed(path + "contiguous_memory_optimization", true);
    if (plan_.layout.recompute.tier.pool == Pool::file)
      warn(fmt::format("{} has no effect: inputs in files lie one behind the other already", contiguous.place));
    else
      plan_.layout.recompute.contiguous = note("contiguous_memory", contiguous);
  }
  if (!used("partition_activations", section.partition_activations.value)) return;
  const auto partition = deepspeed(path + "partition_activations", true);
  if (plan_.layout.tensor_ranks > 1 && !plan_.layout.sequence_parallel) {
    plan_.layout.recompute.partitioned = note("partition_activations", partition);
  } else {
    warn(fmt::format("{} has no effect: {}", partition.place,
                     plan_.layout.sequence_parallel
                         ? "with sequence_parallel each rank has its slice of the inputs already"
                         : "no ranks share matrices; write training.parallelism_config.tp_size"));
  }
}

/// DeepSpeed's cpu_checkpointing says the host; files take the folder that other offloading has.
void Resolver::resolve_input_home() {
  const Setting<bool>& on_host = ds_.activation_checkpointing.cpu_checkpointing;
  auto home = training("offload_inputs", config_.training.offload_inputs);
  require<ConfigError>(home.value == "device" || home.value == "host" || home.value == "file",
                       "{} = \"{}\": expected \"device\", \"host\" or \"file\"", home.place, home.value);
  if (on_host.given) {
    const auto theirs = deepspeed("activation_checkpointing.cpu_checkpointing", on_host.value);
    // false does not speak of files.
    require<ConfigError>(
        !home.given || home.value == (on_host.value ? "host" : "device") || (!on_host.value && home.value == "file"),
        "{} = \"{}\" contradicts {} = {}: give one of them", home.place, home.value, theirs.place, theirs.value);
    if (!home.given && on_host.value) home.value = "host", home.reason = theirs.reason;
  }
  if (plan_.layout.recompute.mode != Recompute::full) {
    if (home.given && home.value != "device")
      warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"", home.place,
                       name_of(plan_.layout.recompute.mode)));
    return;
  }
  plan_.layout.recompute.tier.pool = home.value == "file"   ? Pool::file
                                     : home.value == "host" ? Pool::host
                                                            : Pool::device;
  if (plan_.layout.recompute.tier.pool == Pool::file) {
    const bool states = plan_.layout.sharding.offload_optimizer.tier.pool == Pool::file;
    require<ConfigError>(states || plan_.layout.sharding.offload_param.tier.pool == Pool::file,
                         "{} = \"file\": no folder is known, as nothing else is in files: set offload_optimizer.device "
                         "or offload_param.device of zero_optimization to \"nvme\", with an nvme_path",
                         home.place);
    plan_.layout.recompute.tier.folder =
        states ? plan_.layout.sharding.offload_optimizer.tier.folder : plan_.layout.sharding.offload_param.tier.folder;
    home.reason += fmt::format(", beside {} in {}", states ? "optimizer states" : "parameters",
                               plan_.layout.recompute.tier.folder);
  }
  note("offload_inputs", home);
}

}  // namespace nought
