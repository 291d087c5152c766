// What the backward pass computes again, and how what it starts from is kept: training.recompute and DeepSpeed's
// activation_checkpointing.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

void resolve_tiles(Resolver& r) {
  const Auto<int64_t>& key = r.config.training.tiled_mlp;
  if (!key.given() && !key.automatic()) return;
  const auto tiles = r.section_value("training.tiled_mlp", key.value, true);
  if (key.automatic()) {
    r.plan.layout.recompute.mlp_tiles = 0;
    r.plan.resolved.push_back({"tiled_mlp", "auto", tiles.reason + ": tokens of a rank / hidden size"});
    return;
  }
  require_at_least<int64_t>(tiles, 1);
  r.plan.layout.recompute.mlp_tiles = r.note("tiled_mlp", tiles);
}

/// Where the inputs of blocks are kept. DeepSpeed's cpu_checkpointing says the host; files take the folder that other
/// offloading has.
void resolve_input_tier(Resolver& r) {
  const Setting<bool>& on_host = r.ds.activation_checkpointing.cpu_checkpointing;
  auto tier = r.training("offload_inputs", r.config.training.offload_inputs);
  require<ConfigError>(tier.value == "device" || tier.value == "host" || tier.value == "file",
                       "{} = \"{}\": expected \"device\", \"host\" or \"file\"", tier.place, tier.value);
  if (on_host.given) {
    const auto theirs = r.deepspeed("activation_checkpointing.cpu_checkpointing", on_host.value);
    // false does not speak of files.
    require<ConfigError>(
        !tier.given || tier.value == (on_host.value ? "host" : "device") || (!on_host.value && tier.value == "file"),
        "{} = \"{}\" contradicts {} = {}: give one of them", tier.place, tier.value, theirs.place, theirs.value);
    if (!tier.given && on_host.value) tier.value = "host", tier.reason = theirs.reason;
  }
  if (r.plan.layout.recompute.mode != Recompute::full) {
    if (tier.given && tier.value != "device")
      r.warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"", tier.place,
                         name_of(r.plan.layout.recompute.mode)));
    return;
  }
  r.plan.layout.recompute.tier.pool = tier.value == "file"   ? Pool::file
                                      : tier.value == "host" ? Pool::host
                                                             : Pool::device;
  if (r.plan.layout.recompute.tier.pool == Pool::file) {
    const bool states = r.plan.layout.sharding.offload_optimizer.tier.pool == Pool::file;
    require<ConfigError>(states || r.plan.layout.sharding.offload_param.tier.pool == Pool::file,
                         "{} = \"file\": no folder is known, as nothing else is in files: set offload_optimizer.device "
                         "or offload_param.device of zero_optimization to \"nvme\", with an nvme_path",
                         tier.place);
    r.plan.layout.recompute.tier.folder = states ? r.plan.layout.sharding.offload_optimizer.tier.folder
                                                 : r.plan.layout.sharding.offload_param.tier.folder;
    tier.reason += fmt::format(", beside {} in {}", states ? "optimizer states" : "parameters",
                               r.plan.layout.recompute.tier.folder);
  }
  r.note("offload_inputs", tier);
}

void resolve_checkpoints(Resolver& r) {
  const DsActivationCheckpointing& section = r.ds.activation_checkpointing;
  const std::string path = "activation_checkpointing.";
  const auto used = [&](const char* key, bool given) {
    if (!given) return false;
    if (r.plan.layout.recompute.mode == Recompute::full) return true;
    r.warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"",
                       r.origins.place("deepspeed." + path + key), name_of(r.plan.layout.recompute.mode)));
    return false;
  };
  if (used("number_checkpoints", section.number_checkpoints.given)) {
    const auto count = r.deepspeed(path + "number_checkpoints", section.number_checkpoints.value);
    require_at_least<int64_t>(count, 1);
    r.plan.layout.recompute.checkpoints = r.note("number_checkpoints", count);
  }
  if (used("cpu_checkpointing", section.cpu_checkpointing.value))
    r.note("cpu_checkpointing", r.deepspeed(path + "cpu_checkpointing", true));
  resolve_input_tier(r);
  if (used("contiguous_memory_optimization", section.contiguous_memory_optimization.value)) {
    const auto contiguous = r.deepspeed(path + "contiguous_memory_optimization", true);
    if (r.plan.layout.recompute.tier.pool == Pool::file)
      r.warn(fmt::format("{} has no effect: inputs in files lie one behind the other already", contiguous.place));
    else
      r.plan.layout.recompute.contiguous = r.note("contiguous_memory", contiguous);
  }
  if (!used("partition_activations", section.partition_activations.value)) return;
  const auto partition = r.deepspeed(path + "partition_activations", true);
  if (r.plan.layout.tensor_ranks > 1 && !r.plan.layout.sequence_parallel) {
    r.plan.layout.recompute.partitioned = r.note("partition_activations", partition);
  } else {
    r.warn(fmt::format("{} has no effect: {}", partition.place,
                       r.plan.layout.sequence_parallel
                           ? "with sequence_parallel each rank has its slice of the inputs already"
                           : "no ranks share matrices; write training.parallelism_config.tp_size"));
  }
}

}  // namespace

/// DeepSpeed's section says how to checkpoint, not whether: a model's code, or the Trainer's argument, says that.
void resolve_recompute(Resolver& r) {
  auto mode = r.training("recompute", r.config.training.recompute);
  const auto whole = r.training("gradient_checkpointing", r.config.training.gradient_checkpointing);
  require<ConfigError>(!mode.given || !whole.given || whole.value == (mode.value == Recompute::full),
                       "{} = {} contradicts {} = \"{}\": give one of them", whole.place, whole.value, mode.place,
                       name_of(mode.value));
  if (!mode.given && whole.given)
    mode = {whole.value ? Recompute::full : Recompute::none, true, whole.place, whole.reason};
  r.plan.layout.recompute = mode.value;
  r.plan.resolved.push_back({"recompute", std::string(name_of(mode.value)), mode.reason});
  const auto fp8 = r.training("recompute_fp8", r.config.training.recompute_fp8);
  if (fp8.value && r.plan.layout.recompute.mode == Recompute::full)
    r.plan.layout.recompute.fp8 = r.note("recompute_fp8", fp8);
  else if (fp8.value)
    r.warn(fmt::format("{} has no effect: recompute is {}; write training.recompute = \"full\"", fp8.place,
                       name_of(r.plan.layout.recompute.mode)));
  resolve_checkpoint_interval(r);
  resolve_checkpoints(r);
  resolve_tiles(r);
}

}  // namespace nought
