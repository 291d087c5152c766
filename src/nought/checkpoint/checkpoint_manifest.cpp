#include "nought/checkpoint/checkpoint_manifest.h"

#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/export_record.h"
#include "nought/io/atomic_file.h"
#include "nought/io/file_format.h"
#include "nought/io/files.h"
#include "nought/io/mapped_file.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr FileFormat kFormat{"nought-checkpoint", 3};
/// With an update that is pending: an older program would go on without it.
constexpr FileFormat kPendingFormat{"nought-checkpoint", 4};
constexpr const char* kChecksum = "xxh3";
constexpr int kDeepest = 64;  // levels of a manifest are few; the checksum is of a text that is made by recursion

std::string checksum_of(const Json& manifest) {
  const std::string text = manifest.dump();
  return xxh3_of(std::as_bytes(std::span(text)));
}

std::string checksum_of_file(const fs::path& file) { return xxh3_of(MappedFile(file).bytes()); }

bool is_of_states(const fs::path& file) { return file.filename().string().starts_with("rank-"); }

/// The checksums of config.json, the tokenizer and what else lies beside the states.
Json other_checksums(const fs::path& folder) {
  Json checksums = Json::object();
  for (const auto& entry : entries_of(folder))
    if (entry.is_regular_file() && !is_of_states(entry.path()))
      checksums[entry.path().filename().string()] = checksum_of_file(entry.path());
  return checksums;
}

Json scale_json(const LossScaler::State& state) {
  return {{"scale", state.scale},
          {"steps", state.steps},
          {"last_overflow", state.last_overflow},
          {"hysteresis", state.hysteresis}};
}

LossScaler::State scale_of(const Json& scale) {
  return {scale.at("scale"), scale.at("steps"), scale.at("last_overflow"), scale.at("hysteresis")};
}

Json local_json(const LocalStepsInfo& local) {
  const LocalStepsOptions& options = local.options;
  Json workers = Json::array();
  for (const LocalStepsInfo::Worker& each : local.workers)
    workers.push_back(
        {{"skipped", each.skipped}, {"loss_scale", scale_json(each.loss_scale)}, {"model_state", each.model_state}});
  return {{"sync_every", options.sync_every},
          {"num_fragments", options.fragments},
          {"fragment_sync_delay", options.delay},
          {"workers", std::move(workers)}};
}

LocalStepsInfo local_of(const Json& json) {
  LocalStepsInfo local;
  local.options.sync_every = json.at("sync_every"), local.options.fragments = json.at("num_fragments");
  local.options.delay = json.at("fragment_sync_delay");
  for (const Json& each : json.at("workers"))
    local.workers.push_back({each.at("skipped"), scale_of(each.at("loss_scale")), each.at("model_state")});
  return local;
}

CheckpointInfo info_of_members(const Json& manifest) {
  CheckpointInfo info{.step = manifest.at("step"),
                      .world_size = manifest.at("world_size"),
                      .zero_stage = manifest.at("zero_stage"),
                      .run = manifest.at("run"),
                      .skipped = manifest.at("skipped"),
                      .loss_scale = scale_of(manifest.at("loss_scale")),
                      .model_state = manifest.value("model_state", std::vector<double>()),
                      .written_by = manifest.value("written_by", std::string()),
                      .written_at = manifest.value("written_at", std::string()),
                      .about = manifest.value("about", Json())};
  if (manifest.contains("validated")) info.validated = manifest.at("validated").get<bool>();
  if (manifest.contains("pending_update")) {
    const Json& pending = manifest.at("pending_update");
    info.pending = {.lr = pending.at("lr"), .gradient_scale = pending.at("gradient_scale")};
  }
  if (manifest.contains("local_steps")) info.local = local_of(manifest.at("local_steps"));
  if (manifest.contains("adapter_base")) {
    const Json& base = manifest.at("adapter_base");
    info.base = {.path = base.at("path"), .hash = base.at("hash")};
  }
  if (manifest.contains("best")) info.best = BestModel::from_json(manifest.at("best"));
  return info;
}

}  // namespace

std::string xxh3_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

void fail_damaged(const fs::path& checkpoint, std::string_view what) {
  fail<IoError>("{} is damaged ({}): resume from an earlier checkpoint", (checkpoint / kManifest).string(), what);
}

void write_manifest(const CheckpointInfo& info, Json blocks, const fs::path& folder, const Json& rank_states) {
  Json manifest{{"format", (info.pending ? kPendingFormat : kFormat).str()},
                {"step", info.step},
                {"world_size", info.world_size},
                {"zero_stage", info.zero_stage},
                {"run", info.run},
                {"skipped", info.skipped},
                {"loss_scale", scale_json(info.loss_scale)},
                {"model_state", info.model_state},
                {"written_by", info.written_by},
                {"written_at", utc_now()},
                {"about", info.about},
                {"beside", other_checksums(folder)},
                {"blocks", std::move(blocks)}};
  if (info.validated) manifest["validated"] = *info.validated;
  if (info.pending)
    manifest["pending_update"] = {{"lr", info.pending->lr}, {"gradient_scale", info.pending->gradient_scale}};
  if (info.local) manifest["local_steps"] = local_json(*info.local);
  if (info.base) manifest["adapter_base"] = {{"path", info.base->path}, {"hash", info.base->hash}};
  if (info.best) manifest["best"] = info.best->json();
  if (!rank_states.is_null()) manifest["rank_states"] = rank_states;
  manifest[kChecksum] = checksum_of(manifest);
  write_text_atomically(folder / kManifest, manifest.dump(1));
}

/// A manifest from a stranger has a right checksum too, and must not make us read what is not the checkpoint's.
void check_file_names(const Json& manifest, const fs::path& checkpoint) {
  const Json beside = manifest.value("beside", Json::object());
  if (!beside.is_object()) fail_damaged(checkpoint, fmt::format("\"beside\" is {}", describe_json(beside)));
  for (const auto& [name, checksum] : beside.items())
    if (!is_file_name(name))
      fail_damaged(checkpoint,
                   fmt::format("\"beside\" names the file {}, which is none of the folder", Json(name).dump()));
  const auto check = [&](const Json& entries) {
    for (const Json& block : entries) {
      const Json file = block.is_object() ? block.value("file", Json()) : Json();
      if (!file.is_string() || !is_file_name(file.get<std::string>()))
        fail_damaged(checkpoint, fmt::format("a block names the file {}, which is none of the folder", file.dump()));
    }
  };
  check(manifest.value("blocks", Json::array()));
  const Json own = manifest.value("rank_states", Json::object());
  if (!own.is_object()) fail_damaged(checkpoint, fmt::format("\"rank_states\" is {}", describe_json(own)));
  check(own.value("tensors", Json::array()));
}

Json read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  const MappedFile file(path);
  if (nesting_of(file.text()) > kDeepest)
    fail_damaged(checkpoint, fmt::format("it nests deeper than {} levels", kDeepest));
  Json manifest = Json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) fail_damaged(checkpoint, manifest.is_discarded() ? "it is not JSON" : "it is no object");
  const Json format = manifest.value("format", Json());
  require_readable(path, format, kPendingFormat);
  if (const auto stored = manifest.find(kChecksum); stored != manifest.end()) {
    // Whatever the format: a flipped bit may have made it an earlier one.
    const Json checksum = *stored;
    manifest.erase(stored);
    if (checksum != checksum_of(manifest)) fail_damaged(checkpoint, "its checksum differs");
  } else if (format == kFormat.str() || format == kPendingFormat.str()) {
    fail_damaged(checkpoint, "it lacks its checksum");
  }
  check_file_names(manifest, checkpoint);
  return manifest;
}

CheckpointInfo info_in(const Json& manifest, const fs::path& checkpoint) {
  CheckpointInfo info;
  try {
    info = info_of_members(manifest);
  } catch (const Json::exception& error) {
    fail_damaged(checkpoint, error.what());
  }
  if (!info.run.is_object()) fail_damaged(checkpoint, fmt::format("\"run\" is {}", describe_json(info.run)));
  if (info.step < 0 || info.skipped < 0 || info.skipped > info.step)
    fail_damaged(checkpoint, fmt::format("step {}, of which {} were skipped", info.step, info.skipped));
  const std::optional<int64_t> named =
      checkpoint_step(checkpoint.has_filename() ? checkpoint : checkpoint.parent_path());
  require<IoError>(!named || *named == info.step,
                   "{}: its manifest is that of step {}: the folder was renamed, or is damaged; give it its name "
                   "back ({}), or resume from another checkpoint",
                   checkpoint.string(), info.step, checkpoint_path("", info.step).string());
  return info;
}

CheckpointInfo read_checkpoint_info(const fs::path& checkpoint) {
  return info_in(read_manifest(checkpoint), checkpoint);
}

void check_other_files(const fs::path& checkpoint) {
  const Json manifest = read_manifest(checkpoint);
  const Json beside = manifest.value("beside", Json::object());
  for (const auto& [name, checksum] : beside.items())
    require<IoError>(checksum_of_file(checkpoint / name) == checksum,
                     "{} is not what the run wrote (its checksum differs): take another checkpoint; to edit it, "
                     "convert the checkpoint to a folder first (nought convert)",
                     (checkpoint / name).string());
}

}  // namespace nought
