#include "nought/checkpoint/checkpoint.h"

#include <algorithm>

#include "nought/checkpoint/checkpoint_rank_states.h"
#include "nought/io/atomic_folder.h"
#include "nought/io/files.h"
#include "nought/io/safetensors_writer.h"
#include "nought/zero/codes.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Prefix of the names of states that each worker has for itself.
std::string worker_prefix(int worker) { return fmt::format("worker{}:", worker); }

/// A block is the unit of a checksum: 4 MiB of fp32.
constexpr int64_t kBlockElements = int64_t{1} << 20;

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

/// A stretch of one state of one parameter that this rank owns.
struct OwnedPiece {
  const Parameter* parameter;
  std::string state;      // its name in the manifest
  Interval in_parameter;  // elements of the flattened part that this rank holds
  DType dtype;
  std::function<Tensor()> values;  // [in_parameter.size()]
};

/// What the optimizer keeps, and, unless they are an adapter's base, frozen parameters as they are; codes as the values
/// that they stand for.
std::vector<OwnedPiece> owned_pieces(ShardedModel& model, LocalSteps* local, bool with_frozen) {
  std::vector<OwnedPiece> pieces;
  const std::string of_worker = local == nullptr ? "" : worker_prefix(local->workers().index());
  for (const ShardedOptimizer::OwnedState& state : model.optimizer().owned())
    pieces.push_back({state.parameter, of_worker + std::string(name_of(state.kind)), state.in_parameter, DType::f32,
                      [&model, state] { return model.optimizer().values(state); }});
  if (local != nullptr)
    for (const LocalSteps::Owned& each : local->owned())
      pieces.push_back({each.parameter, std::string(name_of(each.kind)), each.in_parameter, DType::f32,
                        [values = each.values] { return values; }});
  if (!with_frozen) return pieces;
  if (local != nullptr && local->workers().index() != 0) return pieces;  // all have the same frozen parameters
  const auto& units = model.model().units();
  const Residency& residency = model.residency();
  const auto owned = [&residency](SegmentIndex at) {
    return residency.partition(at).owned(residency.ranks(at).rank());
  };
  const std::string master(name_of(StateKind::master));
  for (const SegmentIndex at : segments_of(units, /*trainable=*/false)) {
    const Segment& segment = units[at.unit]->segments()[at.segment];
    if (!writes_for_all(segment, model.mesh())) continue;
    const Interval mine = owned(at);
    for (const ParameterPiece& piece : pieces_in(*units[at.unit], at.segment, mine)) {
      const auto values = [&residency, at, elements = piece.in_segment] { return residency.read(at, elements); };
      const Parameter* parameter = &units[at.unit]->parameters()[piece.parameter];
      if (segment.content == SegmentContent::codes) {
        require(segment.codes.kind == CodeKind::q8_0, "{} codes are in no checkpoint: they are a frozen model's",
                name_of(segment.codes.kind));
        const SegmentIndex scales{at.unit, segment.scales};
        const int64_t first = owned(scales).begin + (piece.in_segment.begin - mine.begin) / kCodeBlockBytes;
        const Interval blocks{first, first + piece.in_segment.size() / kCodeBlockBytes};
        pieces.push_back(
            {parameter, master, piece.in_parameter, DType::f32, [&model, values, scales, blocks] {
               return decoded(model.context(), {values(), model.residency().read(scales, blocks)}, DType::f32);
             }});
        continue;
      }
      pieces.push_back({parameter, master, piece.in_parameter, residency.dtype(at), values});
    }
  }
  return pieces;
}

/// A flat block of a piece, as it goes to a file.
struct OwnedBlock {
  Interval in_piece, in_parameter;
  std::string tensor;  // its name in the file
};

/// What a piece goes to files as: at most kBlockElements at a time.
std::vector<OwnedBlock> blocks_of(const OwnedPiece& piece) {
  std::vector<OwnedBlock> blocks;
  const int64_t size = piece.in_parameter.size(), origin = piece.in_parameter.begin;
  const std::optional<TensorTile>& tile = piece.parameter->placement.tile;  // a rank has several of one name
  const std::string of_tile = tile ? fmt::format("@{}", tile->kept.front().begin) : "";
  for (int64_t begin = 0; begin < size; begin += kBlockElements) {
    const int64_t end = std::min(size, begin + kBlockElements);
    blocks.push_back(
        {{begin, end},
         {origin + begin, origin + end},
         fmt::format("{}/{}{}[{}:{}]", piece.state, piece.parameter->name, of_tile, origin + begin, origin + end)});
  }
  return blocks;
}

/// The indices that this rank has of each dimension; null where nothing cuts the parameter.
Json part_json(const Parameter& parameter, const Mesh& mesh) {
  if (parameter.placement.is_whole()) return {};
  const TensorPart part = part_held(parameter, mesh);
  Json dims = Json::array();
  for (const std::vector<Interval>& kept : part.kept()) {
    dims.push_back(Json::array());
    for (const Interval& interval : kept) dims.back().push_back({interval.begin, interval.end});
  }
  return dims;
}

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

std::string rank_file(int rank, std::string_view extension) { return fmt::format("rank-{:05}.{}", rank, extension); }

/// Writes this rank's blocks and what it has for itself, and their entries of the manifest beside them.
void write_rank(ShardedModel& model, LocalSteps* local, bool with_frozen, int rank, const fs::path& folder) {
  const std::vector<OwnedPiece> pieces = owned_pieces(model, local, with_frozen);
  std::vector<TensorSpec> specs;
  for (const OwnedPiece& piece : pieces)
    for (const OwnedBlock& block : blocks_of(piece))
      specs.push_back({block.tensor, piece.dtype, {block.in_piece.size()}});
  const std::vector<RankLocalTensor> own = model.rank_states();
  for (const TensorSpec& spec : specs_of(own)) specs.push_back(spec);
  SafetensorsWriter writer(folder / rank_file(rank, "safetensors"), specs);
  Json entries = Json::array();
  for (const OwnedPiece& piece : pieces) {
    const Parameter& parameter = *piece.parameter;
    const Shape& global = parameter.placement.global;
    const Json part = part_json(parameter, model.mesh());
    const Tensor whole = model.context().on_host(piece.values());
    for (const OwnedBlock& block : blocks_of(piece)) {
      const Tensor values = whole.flat(block.in_piece.begin, block.in_piece.end);
      writer.write(block.tensor, values);
      entries.push_back({{"state", piece.state},
                         {"parameter", parameter.name},
                         {"shape", std::vector<int64_t>(global.begin(), global.end())},
                         {"file", rank_file(rank, "safetensors")},
                         {"tensor", block.tensor},
                         {"begin", block.in_parameter.begin},
                         {"end", block.in_parameter.end},
                         {"xxh3", xxh3_of(bytes_of(values))}});
      if (!part.is_null()) entries.back()["part"] = part;
      if (!parameter.trainable) entries.back()["frozen"] = true;
    }
  }
  const Json of_rank = write_rank_states(model.context(), rank, own, rank_file(rank, "safetensors"), writer);
  writer.finish();
  write_text_atomically(folder / rank_file(rank, "json"), Json{{"blocks", entries}, {"own", of_rank}}.dump());
}

/// Rank 0, when all ranks have written: their entries of the manifest, which are no files of their own any more.
struct Entries {
  Json blocks = Json::array(), own = Json::array();
};
Entries take_entries(int ranks, const fs::path& folder) {
  Entries entries;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path part = folder / rank_file(rank, "json");
    Json of_rank = Json::parse(read_bytes(part), nullptr, /*allow_exceptions=*/false);
    require<IoError>(of_rank.is_object(), "{} does not hold what a rank has just written", part.string());
    for (Json& entry : of_rank["blocks"]) entries.blocks.push_back(std::move(entry));
    for (Json& entry : of_rank["own"]) entries.own.push_back(std::move(entry));
    fs::remove(part);
  }
  return entries;
}

}  // namespace

fs::path save_checkpoint(ShardedModel& model, const CheckpointInfo& info, const fs::path& folder,
                         const std::function<void(const fs::path&)>& add_files, const CheckpointedWorkers& workers) {
  const fs::path path = checkpoint_path(folder, info.step), partial = partial_folder(path);
  Communicator& world = workers.world == nullptr ? model.mesh().world() : *workers.world;
  const bool first = world.rank() == 0;
  model.settle();
  if (first) begin_folder(path);
  world.barrier().wait();
  write_rank(model, workers.steps, /*with_frozen=*/!info.base, world.rank(), partial);
  world.barrier().wait();
  if (first) {
    with_io_errors(path, [&] {
      if (add_files) add_files(partial);
      Entries entries = take_entries(info.world_size, partial);
      const Json own = entries.own.empty() ? Json() : rank_states_json(model.mesh(), std::move(entries.own));
      write_manifest(info, std::move(entries.blocks), partial, own);
    });
    publish_folder(path);
  }
  world.barrier().wait();
  return path;
}

Checkpoint::Checkpoint(const fs::path& path, const Model& model) : path_(path) {
  const Json manifest = read_manifest(path_);
  info_ = info_in(manifest, path_);
  rank_states_ = manifest.value("rank_states", Json());
  require_same_kind(model);
  std::map<std::string, Shape> shapes;
  try {
    for (const Json& entry : manifest.at("blocks")) {
      const std::string parameter = entry.at("parameter");
      Shape shape;
      for (int64_t extent : entry.at("shape")) shape.push_back(extent);
      shapes[parameter] = shape;
      if (entry.value("frozen", false)) frozen_.insert(parameter);
      blocks_[entry.at("state").get<std::string>() + "/" + parameter].push_back(
          {entry.at("file"), entry.at("tensor"), runs_of(entry, shape), entry.at("xxh3")});
    }
    for (const auto& unit : model.units())
      for (const Parameter& parameter : unit->parameters()) {
        if (is_of_base(parameter)) continue;
        const auto found = shapes.find(parameter.name);
        require<IoError>(found != shapes.end(), "{} does not hold parameter {}: it belongs to another model",
                         path_.string(), parameter.name);
        const Shape& shape = parameter.placement.global;
        require<IoError>(found->second == shape, "{}: parameter {} has shape {}, the model has {}", path_.string(),
                         parameter.name, found->second, shape);
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
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      if (!is_of_base(parameter))
        check_coverage(fmt::format("{}/{}", name_of(StateKind::master), parameter.name),
                       parameter.placement.global.numel());
  for (const auto& [key, blocks] : blocks_) check_coverage(key, shapes.at(key.substr(key.find('/') + 1)).numel());
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
