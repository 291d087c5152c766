#include "nought/checkpoint/checkpoint.h"

#include <algorithm>

#include "nought/checkpoint/checkpoint_rank_states.h"
#include "nought/checkpoint/owned_pieces.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Where the elements of a manifest's block lie in the flattened global tensor. ShapeError if they do not.
std::vector<PartRun> runs_of(const Json& entry, const Shape& global) {
  const Interval interval{entry.at("begin"), entry.at("end")};
  require<ShapeError>(!interval.empty(), "a block of no elements");
  if (!entry.contains("part")) return {{interval, interval}};
  std::vector<std::vector<Interval>> kept;
  for (const Json& dim : entry.at("part")) {
    kept.emplace_back();
    for (const Json& each : dim) kept.back().push_back({each.at(0), each.at(1)});
  }
  return TensorPart(global, std::move(kept)).runs(interval);
}

}  // namespace

fs::path save_checkpoint(ShardedModel& model, const CheckpointInfo& info, const fs::path& folder,
                         const std::function<void(const fs::path&)>& add_files, const CheckpointedWorkers& workers) {
  CheckpointWriter writer(model, workers, /*with_frozen=*/!info.base, /*beside_training=*/false);
  writer.begin({.info = info, .folder = folder, .add_files = add_files});
  const SaveOutcome outcome = writer.finish();
  require<IoError>(outcome.failure.empty(), "{}", outcome.failure);
  return outcome.path;
}

Checkpoint::Checkpoint(const fs::path& path) : path_(path) {
  const Json manifest = read_manifest(path_);
  info_ = info_in(manifest, path_);
  rank_states_ = manifest.value("rank_states", Json());
  try {
    for (const Json& entry : manifest.at("blocks")) {
      const std::string parameter = entry.at("parameter");
      Shape shape;
      for (int64_t extent : entry.at("shape")) shape.push_back(extent);
      shapes_[parameter] = shape;
      if (entry.value("frozen", false)) frozen_.insert(parameter);
      blocks_[entry.at("state").get<std::string>() + "/" + parameter].push_back(
          {entry.at("file"), entry.at("tensor"), runs_of(entry, shape), entry.at("xxh3")});
    }
  } catch (const Json::exception& error) {
    fail_damaged(path_, error.what());
  } catch (const ShapeError& error) {
    fail_damaged(path_, error.what());
  }
  for (const auto& [key, blocks] : blocks_)
    for (const Block& block : blocks)
      if (!files_.contains(block.file)) files_.emplace(block.file, SafetensorsFile(path_ / block.file));
  // Which states there are besides the master depends on the optimizer that wrote them; what there is must be whole.
  for (const auto& [key, blocks] : blocks_) check_coverage(key, shapes_.at(key.substr(key.find('/') + 1)).numel());
}

Checkpoint::Checkpoint(const fs::path& path, const Model& model) : Checkpoint(path) { require_fits(model); }

void Checkpoint::require_fits(const Model& model) const {
  require_same_kind(model);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (is_of_base(parameter)) continue;
      const auto found = shapes_.find(parameter.name);
      require<IoError>(found != shapes_.end(), "{} does not hold parameter {}: it belongs to another model",
                       path_.string(), parameter.name);
      const Shape& shape = parameter.placement.global;
      require<IoError>(found->second == shape, "{}: parameter {} has shape {}, the model has {}", path_.string(),
                       parameter.name, found->second, shape);
      check_coverage(fmt::format("{}/{}", name_of(StateKind::master), parameter.name), shape.numel());
    }
}

void Checkpoint::require_same_kind(const Model& model) const {
  const bool adapted = std::any_of(model.units().begin(), model.units().end(), [](const auto& unit) {
    return std::ranges::any_of(unit->parameters(),
                               [](const Parameter& each) { return each.role == ParameterRole::adapter; });
  });
  require<ConfigError>(adapted == info_.base.has_value() || !adapted,
                       "{} is of a run that trained the model itself, and this one trains an adapter of it: name the "
                       "checkpoint as \"model\", or remove \"adapter\"",
                       path_.string());
  require<ConfigError>(adapted == info_.base.has_value() || adapted,
                       "{} holds an adapter of {}, and not a whole model: a run that goes on from it has the same "
                       "\"adapter\"; nought convert --merge writes the model",
                       path_.string(), info_.base ? info_.base->path : "");
}

void Checkpoint::require_same_frozen(const Model& model) const {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (is_of_base(parameter)) continue;
      const bool was_frozen = frozen_.contains(parameter.name);
      require<ConfigError>(
          !can_be_trained(parameter.role) || was_frozen != parameter.trainable,
          "{}: {} was {} and is {} now; resume with the training.freeze and training.trainable of that "
          "run, or start a new run from the exported weights",
          path_.string(), parameter.name, was_frozen ? "frozen" : "trained",
          parameter.trainable ? "trained" : "frozen");
    }
}

void Checkpoint::check_coverage(const std::string& key, int64_t numel) const {
  std::vector<Interval> stored;
  if (const auto found = blocks_.find(key); found != blocks_.end())
    for (const Block& block : found->second)
      for (const PartRun& run : block.runs) stored.push_back(run.global);
  std::sort(stored.begin(), stored.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t covered = 0;
  for (const Interval& interval : stored) covered = interval.begin == covered ? interval.end : -1;
  require<IoError>(covered == numel, "{}: the manifest does not cover {}: resume from an earlier checkpoint",
                   path_.string(), key);
}

/// Workers have the same frozen parameters, and what they synchronize.
bool Checkpoint::is_of_worker(StateKind kind, const Parameter& parameter) const {
  const bool outer = kind == StateKind::outer_momentum || kind == StateKind::outer_delta;
  return worker_ && !outer && (kind != StateKind::master || own_masters_) && !frozen_.contains(parameter.name);
}

void Checkpoint::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                      const Tensor& destination) const {
  if (is_of_base(parameter)) {
    require(base_ != nullptr, "{} holds no {}: it is of the model that the adapter was trained on", path_.string(),
            parameter.name);
    return base_->fill(kind, parameter, elements, destination);
  }
  const std::string of_worker = is_of_worker(kind, parameter) ? worker_prefix(*worker_) : "";
  const auto found = blocks_.find(fmt::format("{}{}/{}", of_worker, name_of(kind), parameter.name));
  require<IoError>(
      found != blocks_.end(),
      "{} holds no {} of {}: another optimizer wrote it; resume with that one, or start a new run from the "
      "exported weights",
      path_.string(), name_of(kind), parameter.name);
  for (const Block& block : found->second) read(block, elements, destination);
}

std::string Checkpoint::fill_rank_states(const ShardedModel& model) const {
  return nought::fill_rank_states(path_, rank_states_, model.context(), model.mesh(), model.rank_states());
}

void Checkpoint::read(const Block& block, std::span<const Interval> elements, const Tensor& destination) const {
  const SafetensorsFile& file = files_.at(block.file);
  const TensorEntry& entry = file.at(block.tensor);
  const int64_t origin = block.runs.front().local.begin;
  bool verified = false;
  auto run = block.runs.begin();
  int64_t reached = 0;  // so many elements of the destination belong to earlier intervals
  for (const Interval& interval : elements) {
    while (run != block.runs.end() && run->global.end <= interval.begin) ++run;  // both rise
    for (auto each = run; each != block.runs.end() && each->global.begin < interval.end; ++each) {
      const Interval common = intersect(each->global, interval);
      if (common.empty()) continue;
      require<IoError>(std::exchange(verified, true) || xxh3_of(file.raw(entry)) == block.xxh3,
                       "{}: block {} is damaged (its checksum differs): resume from an earlier checkpoint",
                       file.path().string(), block.tensor);
      const int64_t from = each->local.begin - origin + common.begin - each->global.begin;
      const int64_t to = reached + common.begin - interval.begin;
      file.read(block.tensor, {from, from + common.size()}, destination.flat(to, to + common.size()));
    }
    reached += interval.size();
  }
  if (verified) file.release(entry);
}

}  // namespace nought
