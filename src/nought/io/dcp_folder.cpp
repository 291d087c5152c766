#include "nought/io/dcp_folder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "nought/base/checked_math.h"
#include "nought/base/error.h"
#include "nought/io/convert.h"
#include "nought/io/files.h"
#include "nought/io/strict_json.h"
#include "nought/io/torch_archive.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMetadata = ".metadata";
constexpr const char* kAccelerate = "pytorch_model_fsdp_0";
constexpr const char* kAccelerateStates = "optimizer_0";  // beside it
constexpr std::string_view kNames = "torch.distributed.checkpoint.metadata.";
constexpr std::string_view kGlobalsOfDcp[] = {"torch.distributed.checkpoint.metadata.Metadata",
                                              "torch.distributed.checkpoint.metadata.MetadataIndex",
                                              "torch.distributed.checkpoint.metadata.StorageMeta",
                                              "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
                                              "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
                                              "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
                                              "torch.distributed.checkpoint.metadata.TensorProperties",
                                              "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
                                              "torch.distributed.checkpoint.filesystem._StorageInfo",
                                              "pathlib.PosixPath",
                                              "pathlib._local.PosixPath"};

/// Whether what lies under a key is an optimizer's.
bool is_of_optimizer(const std::string& key) { return key.starts_with("optim"); }

using Numbers = std::vector<int64_t>;

Shape shape_of(const Numbers& extents) {
  Shape shape;
  for (const int64_t extent : extents) shape.push_back(extent);
  return shape;
}

class DcpReader {
 public:
  explicit DcpReader(const fs::path& folder) : folder_(folder), source_((folder / kMetadata).string()) {
    const std::string bytes = read_bytes(folder / kMetadata);
    pickle_ = read_pickle(std::as_bytes(std::span(bytes)), source_,
                          [](std::string_view name) { return is_global_of_tensors(name, kGlobalsOfDcp); });
    read_places();
  }

  TensorPieces read_weights() {
    const std::map<std::string, std::string> names = names_of_weights();
    Table table{TensorPieces(folder_)};
    for_each_tensor([&](const std::string& key, const PickleValue& tensor) {
      if (const auto name = names.find(key); name != names.end()) add(key, name->second, tensor, table);
    });
    return std::move(table.pieces);
  }
  /// The tensors of an optimizer: "exp_avg" -> by the names of the weights.
  std::map<std::string, TensorPieces> read_states() {
    std::map<std::string, std::pair<std::string, std::string>> names = names_of_states();
    std::map<std::string, Table> tables;
    for_each_tensor([&](const std::string& key, const PickleValue& tensor) {
      const auto found = names.find(key);
      if (found == names.end()) return;
      const auto& [name, state] = found->second;
      add(key, name, tensor, tables.try_emplace(state, Table{TensorPieces(folder_)}).first->second);
    });
    std::map<std::string, TensorPieces> states;
    for (auto& [state, table] : tables) states.emplace(state, std::move(table.pieces));
    return states;
  }

  /// What the optimizer was told of its groups of parameters; each setting is an archive of its own.
  std::vector<ForeignGroup> read_groups() const {
    std::map<std::string, ForeignGroup> groups;
    Table table{TensorPieces(folder_)};
    for (const auto& [key, place] : settings_) {
      const size_t end = key.rfind('.');
      const std::string_view name = std::string_view(key).substr(end + 1);
      if (std::ranges::count(kSettings, name) > 0) {
        size_t number = 0;
        const TorchArchive value = archive_at(key, place, table, number);
        note_setting(name, value.pickle(), value.root(), groups[key.substr(0, end)]);
      }
    }
    std::vector<ForeignGroup> all;
    for (const auto& [key, group] : groups)
      if (std::ranges::count(all, group) == 0) all.push_back(group);
    return all;
  }

 private:
  struct Place {
    std::string file;
    int64_t offset, length;
  };
  struct Table {
    TensorPieces pieces;
    std::map<std::string, size_t> opened = {};
  };
  const PickleValue& root() const { return pickle_[pickle_.root]; }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<IoError>("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }
  const PickleValue& of(const PickleValue& object, std::string_view key) const {
    const PickleValue* found = pickle_.find(object, key);
    if (found == nullptr) refuse("no \"{}\", which torch.distributed.checkpoint writes", key);
    return *found;
  }
  Numbers numbers(const PickleValue& value) const {
    const auto found = pickle_.integers(value);
    if (!found || found->size() > static_cast<size_t>(Shape::kMaxRank)) refuse("a size that is none");
    for (const int64_t each : *found)
      if (each < 0 || each > kMostElements) refuse("the size {}", each);
    return *found;
  }
  template <class Visit>
  void for_each(const PickleValue& dict, const Visit& visit) const {
    if (!pickle_.for_each_entry(dict, visit)) refuse("no dict where torch.distributed.checkpoint writes one");
  }

  template <class Visit>
  void for_each_tensor(const Visit& visit) const {
    for_each(of(root(), "state_dict_metadata"), [&](const PickleValue& key, const PickleValue& value) {
      if (pickle_.calls(value, std::string(kNames) + "TensorStorageMetadata")) visit(key.text, value);
    });
  }

  void read_places() {
    for_each(of(root(), "storage_data"), [&](const PickleValue& index, const PickleValue& info) {
      const PickleValue* offset = pickle_.find(index, "offset");
      const bool tensor = offset != nullptr && offset->kind != PickleValue::Kind::none;
      const std::string& key = of(index, "fqn").text;
      if (!tensor && key.find(kGroups) == std::string::npos) return;
      const PickleValue* transforms = pickle_.find(info, "transform_descriptors");
      const std::string& file = of(info, "relative_path").text;
      if (transforms != nullptr && transforms->kind != PickleValue::Kind::none)
        refuse("{} is transformed or compressed: save without extensions", excerpt(file));
      if (!is_file_name(file)) refuse("\"{}\" is no file of the folder", excerpt(file));
      const Place place{file, of(info, "offset").integer, of(info, "length").integer};
      tensor ? places_[{key, numbers(*offset)}] = place : settings_[key] = place;
    });
  }

  /// The key of each tensor of the model, with its name in the model's state dict. planner_data says in which dicts a
  /// key lay: ("app", "model", "model.norm.weight").
  std::map<std::string, std::string> names_of_weights() const {
    std::map<std::string, std::map<std::string, std::string>> dicts;  // where a dict lay -> its keys and their names
    std::set<std::string> tensors;
    for_each_tensor([&](const std::string& key, const PickleValue&) { tensors.insert(key); });
    const PickleValue* paths = pickle_.find(root(), "planner_data");
    if (paths == nullptr || !pickle_.entries(*paths)) {
      std::map<std::string, std::string> all;
      for (const std::string& key : tensors) all.emplace(key, key);
      return all;
    }
    for_each(*paths, [&](const PickleValue& key, const PickleValue& path) {
      if (!tensors.contains(key.text) || path.items.empty()) return;
      std::string where;
      bool optimizer = false;
      for (size_t i = 0; i + 1 < path.items.size(); ++i) {
        const std::string& part = pickle_.item(path, i).text;
        optimizer = optimizer || is_of_optimizer(part);
        where += (where.empty() ? "" : ".") + part;
      }
      if (!optimizer) dicts[where].emplace(key.text, pickle_.item(path, path.items.size() - 1).text);
    });
    if (dicts.empty()) refuse("no weights of a model: is this the folder of an optimizer?");
    if (dicts.size() > 1)
      refuse("tensors in the dicts \"{}\" and \"{}\": save the model's state dict alone, or beside \"optim\"",
             excerpt(dicts.begin()->first), excerpt(std::next(dicts.begin())->first));
    return dicts.begin()->second;
  }

  /// The key of each tensor of an optimizer, with the name of its weight and that of the state: ("app", "optim",
  /// "state", "model.norm.weight", "exp_avg"), or the last three joined with dots.
  std::map<std::string, std::pair<std::string, std::string>> names_of_states() const {
    std::map<std::string, std::pair<std::string, std::string>> names;
    const PickleValue* paths = pickle_.find(root(), "planner_data");
    if (paths == nullptr || !pickle_.entries(*paths)) return names;
    for_each(*paths, [&](const PickleValue& key, const PickleValue& path) {
      std::string where;
      bool optimizer = false;
      for (size_t i = 0; i < path.items.size(); ++i) {
        const std::string& part = pickle_.item(path, i).text;
        if (optimizer) where += (where.empty() ? "" : ".") + part;
        optimizer = optimizer || is_of_optimizer(part);
      }
      const size_t end = where.rfind('.');
      if (where.starts_with(kState) && end != std::string::npos && end > kState.size())
        names[key.text] = {where.substr(kState.size(), end - kState.size()), where.substr(end + 1)};
    });
    return names;
  }

  size_t file(const std::string& name, Table& table) const {
    const auto found = table.opened.find(name);
    if (found != table.opened.end()) return found->second;
    std::error_code ignored;
    require<IoError>(fs::exists(folder_ / name, ignored),
                     "{}: is missing, and .metadata names it: copy the whole folder", (folder_ / name).string());
    return table.opened.emplace(name, table.pieces.open(folder_ / name)).first->second;
  }

  void add(const std::string& key, const std::string& name, const PickleValue& tensor, Table& table) const {
    const Numbers size = numbers(of(tensor, "size"));
    const PickleValue& chunks = of(tensor, "chunks");
    if (!checked_product(1, size, kMostElements)) refuse("tensor \"{}\" has an absurd shape", excerpt(key));
    TensorEntry entry{name, DType::f32, shape_of(size), {}};
    std::vector<TensorPiece> pieces;
    const TorchDType* dtype = nullptr;
    std::vector<std::pair<Numbers, Numbers>> boxes;
    for (const size_t each : chunks.items) {
      const Numbers offsets = numbers(of(pickle_[each], "offsets")), sizes = numbers(of(pickle_[each], "sizes"));
      boxes.emplace_back(offsets, sizes);
      const auto place = places_.find({key, offsets});
      if (place == places_.end()) refuse("a chunk of \"{}\" lies in no file", excerpt(key));
      TensorPiece piece = piece_of(key, size, offsets, sizes);
      const TorchTensor stored = stored_chunk(key, place->second, sizes, piece, table);
      if (dtype != nullptr && dtype != stored.dtype) refuse("chunks of \"{}\" differ in dtype", excerpt(key));
      dtype = stored.dtype;
      pieces.push_back(piece);
    }
    if (dtype == nullptr) refuse("tensor \"{}\" has no chunks", excerpt(key));
    if (std::any_of(pieces.begin(), pieces.end(), [](const TensorPiece& piece) { return piece.rows > 1; }))
      refuse_overlaps(key, boxes);
    if (!dtype->dtype) return table.pieces.add_unsupported(name, dtype->name);
    entry.dtype = *dtype->dtype, entry.packed = dtype->packed;
    table.pieces.add(std::move(entry), std::move(pieces));
  }

  /// opened: the file that it lies in.
  TorchArchive archive_at(const std::string& key, const Place& place, Table& table, size_t& opened) const {
    opened = file(place.file, table);
    const std::span<const std::byte> bytes = table.pieces.bytes(opened);
    const std::string source = table.pieces.path(opened).string();
    const auto room = std::ssize(bytes);
    require<IoError>(
        place.offset >= 0 && place.length > 0 && place.offset <= room && place.length <= room - place.offset,
        "{}: truncated: bytes {} to {} of {} are a chunk of \"{}\": copy the file again", source, place.offset,
        place.offset + place.length, room, excerpt(key));
    return {bytes.subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.length)), source};
  }
  static void note_setting(std::string_view name, const Pickle& pickle, const PickleValue& value, ForeignGroup& group) {
    const auto number = [](const PickleValue& one) -> std::optional<double> {
      if (one.kind == PickleValue::Kind::number) return one.number;
      const bool whole = one.kind == PickleValue::Kind::integer || one.kind == PickleValue::Kind::boolean;
      return whole ? std::optional(static_cast<double>(one.integer)) : std::nullopt;
    };
    if (name == "eps") group.eps = number(value);
    if (name == "weight_decay") group.weight_decay = number(value);
    if (name == "decoupled_weight_decay" && number(value)) group.decoupled = *number(value) != 0;
    if (name == "betas" && value.kind == PickleValue::Kind::list && value.items.size() == 2)
      group.beta1 = number(pickle.item(value, 0)), group.beta2 = number(pickle.item(value, 1));
  }

  TorchTensor stored_chunk(const std::string& key, const Place& place, const Numbers& sizes, TensorPiece& piece,
                           Table& table) const {
    const TorchArchive archive = archive_at(key, place, table, piece.file);
    const std::string& source = archive.source();
    TorchTensor stored = archive.tensor(key, archive.root());
    const Shape shape = shape_of(sizes);
    require<IoError>(stored.entry.shape == shape, "{}: a chunk of \"{}\" is {}, and .metadata says {}", source,
                     excerpt(key), stored.entry.shape, shape);
    piece.offset = place.offset + stored.entry.bytes.begin;
    return stored;
  }

  /// A box of the tensor: cut along the first dimension, along another one, or both.
  TensorPiece piece_of(const std::string& key, const Numbers& size, const Numbers& offsets,
                       const Numbers& sizes) const {
    if (offsets.size() != size.size() || sizes.size() != size.size())
      refuse("a chunk of \"{}\" has another number of dimensions", excerpt(key));
    TensorPiece piece{.begin = 0, .run = 1, .rows = 1, .stride = 1};
    size_t cut = 0;  // the last dimension that is cut
    for (size_t i = 0; i < size.size(); ++i) {
      if (sizes[i] > size[i] || offsets[i] > size[i] - sizes[i]) refuse("a chunk of \"{}\" leaves it", excerpt(key));
      if (sizes[i] != size[i]) {
        if (cut > 0)
          refuse("tensor \"{}\" is cut along dimensions {} and {}, and read is one beside the first", excerpt(key), cut,
                 i);
        cut = i;
      }
      piece.begin = piece.begin * size[i] + offsets[i];
    }
    for (size_t i = 0; i < size.size(); ++i) {
      if (i >= cut) piece.run *= sizes[i], piece.stride *= size[i];
      if (i < cut) piece.rows *= sizes[i];
    }
    if (piece.rows == 1) piece.stride = 0;
    return piece;
  }
  void refuse_overlaps(const std::string& key, const std::vector<std::pair<Numbers, Numbers>>& boxes) const {
    if (boxes.size() > kMostBoxes) refuse("tensor \"{}\" has {} chunks", excerpt(key), boxes.size());
    for (size_t a = 0; a < boxes.size(); ++a)
      for (size_t b = a + 1; b < boxes.size(); ++b) {
        bool apart = false;
        for (size_t i = 0; i < boxes[a].first.size(); ++i)
          apart = apart || boxes[a].first[i] + boxes[a].second[i] <= boxes[b].first[i] ||
                  boxes[b].first[i] + boxes[b].second[i] <= boxes[a].first[i];
        if (!apart) refuse("two chunks of \"{}\" overlap", excerpt(key));
      }
  }

  static constexpr int64_t kMostElements = int64_t{1} << 56;
  static constexpr size_t kMostBoxes = 4096;

  static constexpr std::string_view kState = "state.";
  static constexpr std::string_view kGroups = "param_groups.";
  static constexpr std::string_view kSettings[] = {"betas", "eps", "weight_decay", "decoupled_weight_decay"};

  fs::path folder_;
  std::string source_;
  Pickle pickle_;
  std::map<std::pair<std::string, Numbers>, Place> places_;
  std::map<std::string, Place> settings_;  // what the optimizer was told, by "param_groups.KEY"
};

fs::path dcp_in(const fs::path& folder) {
  for (const fs::path& each : {folder, folder / kAccelerate}) {
    std::error_code ignored;
    if (fs::is_regular_file(each / kMetadata, ignored)) return each;
  }
  return {};
}

/// What all of an optimizer's scalars called step say. IoError if they differ.
int64_t updates_of(const TensorPieces& steps) {
  constexpr double kMost = 1e12;
  std::optional<double> updates;
  for (const TensorEntry& entry : steps.entries()) {
    if (entry.shape.numel() != 1 || entry.packed) continue;
    double step = 0;
    steps.visit_bytes(entry.name,
                      [&](std::span<const std::byte> bytes) { step = number_at(entry.dtype, bytes.data()); });
    require<IoError>(step >= 0 && step < kMost, "{}: the optimizer's step of \"{}\" is {}, which is no count",
                     steps.folder().string(), excerpt(entry.name), step);
    require<IoError>(updates.value_or(step) == step,
                     "{}: the optimizer has made {} updates of \"{}\" and {} of others: parameters that joined later "
                     "are not read; name the folder as \"model\", which begins anew with its weights",
                     steps.folder().string(), step, excerpt(entry.name), updates.value_or(step));
    updates = step;
  }
  return static_cast<int64_t>(updates.value_or(0));
}

}  // namespace

bool holds_dcp(const fs::path& folder) { return !dcp_in(folder).empty(); }

TensorPieces read_dcp(const fs::path& folder) { return DcpReader(dcp_in(folder)).read_weights(); }

ForeignRun read_dcp_run(const fs::path& folder) {
  const fs::path found = dcp_in(folder), beside = found.parent_path() / kAccelerateStates;
  DcpReader reader(found);
  ForeignRun run(found);
  run.writer = "torch.distributed.checkpoint";
  run.weights = reader.read_weights();
  std::error_code ignored;
  const bool apart = found.filename() == kAccelerate && fs::is_regular_file(beside / kMetadata, ignored);
  DcpReader beside_it(apart ? beside : found);
  run.states = beside_it.read_states(), run.groups = beside_it.read_groups();
  if (const auto steps = run.states.find("step"); steps != run.states.end()) {
    run.updates = updates_of(steps->second);
    run.states.erase(steps);
  }
  return run;
}

}  // namespace nought
