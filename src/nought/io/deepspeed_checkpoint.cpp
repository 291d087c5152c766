#include "nought/io/deepspeed_checkpoint.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "nought/base/checked_math.h"
#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/base/open_file.h"
#include "nought/io/deepspeed_files.h"
#include "nought/io/strict_json.h"
#include "nought/io/torch_archive.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

using Kind = PickleValue::Kind;

/// What stands beside the tensors of a step. Of the scaler's state nothing is used.
constexpr std::string_view kGlobalsOfSteps[] = {"deepspeed.runtime.fp16.loss_scaler.LossScaler",
                                                "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
                                                "deepspeed.runtime.zero.config.ZeroStageEnum",
                                                "deepspeed.utils.tensor_fragment.fragment_address",
                                                "__builtin__.set",
                                                "builtins.set"};

/// The elements of a rank's flat tensor, which lie in a file.
struct Segment {
  size_t file;
  int64_t offset;  // in bytes
  int64_t numel;
};

/// The flat tensors of ranks, one after the other.
struct Flat {
  std::vector<Segment> segments = {};
  DType dtype = DType::f32;
  int64_t numel = 0;

  /// Appends the pieces of these elements, which are those from `begin` of a tensor.
  void cut(Interval elements, int64_t begin, std::vector<TensorPiece>& pieces) const {
    int64_t at = 0;
    for (const Segment& segment : segments) {
      const int64_t first = std::max(at, elements.begin), last = std::min(at + segment.numel, elements.end);
      if (first < last)
        pieces.push_back({segment.file, segment.offset + (first - at) * size_of(dtype), begin + first - elements.begin,
                          last - first});
      at += segment.numel;
    }
  }
};

class StepReader {
 public:
  explicit StepReader(const fs::path& folder) : folder_(folder), pieces_(folder) {}

  TensorPieces read() {
    std::error_code ignored;
    for (const fs::directory_entry& each : entries_of(folder_, ignored))
      require<IoError>(!each.path().filename().string().starts_with("layer_"),
                       "{}: experts or stages of a pipeline: DeepSpeed's ds_to_universal.py merges them, and what it "
                       "writes is read",
                       each.path().string());
    files_ = deepspeed_files(folder_);
    const DeepSpeedFile* model = first(false);
    require<IoError>(model != nullptr,
                     "{}: no mp_rank_00_model_states.pt, which says the shapes: copy the whole folder",
                     folder_.string());
    model_ = open(model->path);
    const bool universal = fs::is_directory(folder_ / "zero", ignored);
    if (!universal) refuse_model_parallel();
    if (universal) {
      read_universal();
    } else if (first(true) == nullptr) {
      read_module();
    } else {
      read_masters();
    }
    read_frozen(model->of_rank);
    read_buffers();
    read_shared();
    return std::move(pieces_);
  }

 private:
  struct Opened {
    size_t file = 0;
    const TorchArchive* archive = nullptr;

    const PickleValue& value(std::string_view key) const { return of(archive->root(), key); }
    const PickleValue& of(const PickleValue& dict, std::string_view key) const {
      const PickleValue* found = archive->pickle().find(dict, key);
      require<IoError>(found != nullptr, "{}: has no \"{}\", which DeepSpeed writes", archive->source(), key);
      return *found;
    }
  };

  const DeepSpeedFile* first(bool optimizer) const {
    const auto found = std::find_if(files_.begin(), files_.end(),
                                    [&](const DeepSpeedFile& file) { return file.optimizer == optimizer; });
    return found == files_.end() ? nullptr : &*found;
  }
  Opened open(const fs::path& path) {
    const size_t file = pieces_.open(path);
    archives_.emplace_back(pieces_.bytes(file), path.string(), kGlobalsOfSteps);
    return {file, &archives_.back()};
  }
  void refuse_model_parallel() const {
    for (const DeepSpeedFile& file : files_)
      require<IoError>(file.model_rank == 0,
                       "{}: of tensor parallel rank {}: DeepSpeed's ds_to_universal.py merges the ranks, and what it "
                       "writes is read",
                       file.path.string(), file.model_rank);
  }
  /// The files of all ranks, of which there must be `count`.
  std::vector<DeepSpeedFile> of_ranks(bool optimizer, int64_t count) const {
    std::vector<DeepSpeedFile> found;
    for (const DeepSpeedFile& file : files_)
      if (file.optimizer == optimizer && file.model_rank == 0) found.push_back(file);
    for (int64_t rank = 0; rank < std::max(count, std::ssize(found)); ++rank)
      require<IoError>(rank < std::ssize(found) && rank < count && found[static_cast<size_t>(rank)].rank == rank,
                       "{}: {} ranks wrote this step, and the {} of rank {} is {}: copy the whole folder",
                       folder_.string(), count, optimizer ? "*_optim_states.pt" : "*_model_states.pt", rank,
                       rank < count ? "missing" : "one too many");
    return found;
  }

  /// The shape of a parameter; its number of elements is checked against overflow.
  Shape shape_of(const std::string& name, const PickleValue& value) const {
    const auto sizes = model_.archive->pickle().integers(value);
    const bool sane = sizes && sizes->size() <= static_cast<size_t>(Shape::kMaxRank);
    require<IoError>(sane, "{}: parameter \"{}\" has no shape of up to {} dimensions", model_.archive->source(),
                     excerpt(name), int{Shape::kMaxRank});
    require<IoError>(checked_product(1, *sizes, kMostElements - 1).has_value(),
                     "{}: parameter \"{}\" has an absurd shape", model_.archive->source(), excerpt(name));
    Shape shape;
    for (const int64_t extent : *sizes) shape.push_back(extent);
    return shape;
  }
  /// Visits names and values of a dict in their order.
  template <class Visit>
  static void for_each_entry(const Opened& opened, const PickleValue& dict, const Visit& visit) {
    const bool is_dict = opened.archive->pickle().for_each_entry(
        dict, [&](const PickleValue& key, const PickleValue& value) { visit(key.text, value); });
    require<IoError>(is_dict, "{}: no dict where DeepSpeed writes one", opened.archive->source());
  }
  struct Named {
    std::string name;
    Shape shape;
  };
  /// The parameters of each group, in the order in which they lie in its flat tensor.
  std::vector<std::vector<Named>> groups() const {
    const PickleValue& shapes = model_.value("param_shapes");
    require<IoError>(shapes.kind == Kind::list,
                     "{}: \"param_shapes\" is no list of groups, as DeepSpeed since 0.5 "
                     "writes it: save with a newer one",
                     model_.archive->source());
    std::vector<std::vector<Named>> groups;
    for (const size_t group : shapes.items) {
      groups.emplace_back();
      for_each_entry(model_, model_.archive->pickle()[group], [&](const std::string& name, const PickleValue& shape) {
        groups.back().push_back({name, shape_of(name, shape)});
      });
    }
    return groups;
  }

  static void append(const Opened& rank, const std::string& name, const PickleValue& value, Flat& flat) {
    const TorchTensor tensor = rank.archive->tensor(name, value);
    require<IoError>(tensor.dtype->dtype && is_float(*tensor.dtype->dtype) && !tensor.entry.packed &&
                         (flat.segments.empty() || flat.dtype == *tensor.dtype->dtype),
                     "{}: \"{}\" is {}, and masters are floats of one dtype", rank.archive->source(), name,
                     tensor.dtype->name);
    flat.dtype = *tensor.dtype->dtype;
    flat.segments.push_back({rank.file, tensor.entry.bytes.begin, tensor.entry.shape.numel()});
    flat.numel += tensor.entry.shape.numel();
  }
  const PickleValue& list_of(const Opened& opened, const PickleValue& dict, std::string_view key) const {
    const PickleValue& list = opened.of(dict, key);
    require<IoError>(list.kind == Kind::list, "{}: \"{}\" is no list", opened.archive->source(), key);
    return list;
  }
  void add(const Named& parameter, DType dtype, std::vector<TensorPiece> pieces) {
    pieces_.add({parameter.name, dtype, parameter.shape, {}}, std::move(pieces));
  }

  void read_masters() {
    const Opened one = open(first(true)->path);
    const PickleValue& state = one.value("optimizer_state_dict");
    const PickleValue* stage = one.archive->pickle().find(state, "zero_stage");
    // BF16_Optimizer says none. The others write an int, or the enum of it.
    const int64_t number = stage == nullptr ? 1 : integer_of(*one.archive, *stage);
    const PickleValue& partitions = one.of(state, "partition_count");
    int64_t ranks = partitions.integer;
    if (const auto all = one.archive->pickle().integers(partitions); all && !all->empty())
      ranks = *std::max_element(all->begin(), all->end());
    require<IoError>(number >= 0 && number <= 3, "{}: ZeRO stage {}, known are 0 to 3", one.archive->source(), number);
    std::vector<Opened> opened;
    for (const DeepSpeedFile& file : of_ranks(true, ranks)) opened.push_back(open(file.path));
    number == 3 ? read_third_stage(opened) : read_first_stages(opened);
  }
  static int64_t integer_of(const TorchArchive& archive, const PickleValue& value) {
    if (value.kind != Kind::call) return value.integer;
    const auto arguments = archive.pickle().integers(archive.pickle().item(value, 1));
    return arguments && !arguments->empty() ? arguments->front() : -1;
  }

  /// Every rank has its part of the flat tensor of each group.
  void read_first_stages(const std::vector<Opened>& ranks) {
    const std::vector<std::vector<Named>> all = groups();
    const int64_t align = 2 * std::ssize(ranks);
    for (size_t group = 0; group < all.size(); ++group) {
      Flat flat;
      for (const Opened& rank : ranks) {
        const PickleValue& list = list_of(rank, rank.value("optimizer_state_dict"), "single_partition_of_fp32_groups");
        require<IoError>(list.items.size() == all.size(), "{}: masters of {} groups, and shapes of {}",
                         rank.archive->source(), list.items.size(), all.size());
        append(rank, "single_partition_of_fp32_groups", rank.archive->pickle().item(list, group), flat);
      }
      const std::vector<int64_t> paddings = paddings_of(ranks.front(), group, all[group].size());
      int64_t needed = 0, at = 0;
      for (size_t i = 0; i < all[group].size(); ++i) needed += all[group][i].shape.numel() + paddings[i];
      require<IoError>(round_up(needed, align) == round_up(flat.numel, align),
                       "{}: group {} has {} masters, and its shapes need {}: files of different steps?",
                       folder_.string(), group, flat.numel, needed);
      for (size_t i = 0; i < all[group].size(); ++i) {
        const Interval elements{at, at + all[group][i].shape.numel()};
        std::vector<TensorPiece> pieces;
        flat.cut(elements, 0, pieces);
        add(all[group][i], flat.dtype, std::move(pieces));
        at = elements.end + paddings[i];
      }
    }
  }
  /// How many elements of no parameter follow each one.
  static std::vector<int64_t> paddings_of(const Opened& rank, size_t group, size_t count) {
    const Pickle& pickle = rank.archive->pickle();
    const PickleValue* all = pickle.find(rank.value("optimizer_state_dict"), "param_alignment_paddings");
    if (all == nullptr || all->kind != Kind::list) return std::vector<int64_t>(count);
    const auto own = group < all->items.size() ? pickle.integers(pickle.item(*all, group)) : std::nullopt;
    const bool sane = own && own->size() == count && std::all_of(own->begin(), own->end(), [](int64_t each) {
                        return each >= 0 && each < kMostElements;
                      });
    require<IoError>(sane, "{}: \"param_alignment_paddings\" of group {} are not those of {} parameters",
                     rank.archive->source(), group, count);
    return *own;
  }

  /// Every rank has a part of each parameter, in the flat tensors of its own.
  void read_third_stage(const std::vector<Opened>& ranks) {
    std::vector<Flat> flats(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const PickleValue& state = ranks[rank].value("optimizer_state_dict");
      refuse_other_partitions(ranks[rank], state, std::ssize(ranks));
      for (const size_t flat : list_of(ranks[rank], state, "fp32_flat_groups").items)
        append(ranks[rank], "fp32_flat_groups", ranks[rank].archive->pickle()[flat], flats[rank]);
      require<IoError>(flats[rank].dtype == flats[0].dtype, "{}: masters of another dtype than those of rank 0",
                       ranks[rank].archive->source());
    }
    int64_t at = 0;
    for (const std::vector<Named>& group : groups())
      for (const Named& parameter : group) {
        const int64_t part = add_parts(parameter, flats, at);
        at += part;
      }
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      require<IoError>(flats[rank].numel == at, "{}: {} masters, and the shapes need {}: files of different steps?",
                       ranks[rank].archive->source(), flats[rank].numel, at);
  }
  static void refuse_other_partitions(const Opened& rank, const PickleValue& state, int64_t ranks) {
    const Pickle& pickle = rank.archive->pickle();
    const PickleValue* groups = pickle.find(state, "ds_zero_partition_groups");
    if (groups == nullptr || groups->kind != Kind::list) return;
    for (const size_t each : groups->items) {
      const PickleValue* count = pickle.find(pickle[each], "partition_count");
      require<IoError>(count == nullptr || count->integer == ranks,
                       "{}: experts over fewer ranks than the rest: DeepSpeed's ds_to_universal.py merges them, and "
                       "what it writes is read",
                       rank.archive->source());
    }
  }
  /// Adds a parameter of which each rank has as many elements, from `at` of its own; the last ones are padding. Returns
  /// how many that are.
  int64_t add_parts(const Named& parameter, const std::vector<Flat>& flats, int64_t at) {
    const int64_t numel = parameter.shape.numel(), ranks = std::ssize(flats), part = ceil_div(numel, ranks);
    std::vector<TensorPiece> pieces;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t count = std::clamp<int64_t>(numel - rank * part, 0, part);
      flats[static_cast<size_t>(rank)].cut({at, at + count}, rank * part, pieces);
    }
    add(parameter, flats[0].dtype, std::move(pieces));
    return part;
  }

  /// Weights of a run without ZeRO: those of the module.
  void read_module() {
    const PickleValue* shapes = model_.archive->pickle().find(model_.archive->root(), "param_shapes");
    require<IoError>(shapes == nullptr || shapes->kind == Kind::none,
                     "{}: no *_optim_states.pt, where the masters of ZeRO's ranks are: copy the whole folder",
                     folder_.string());
    for_each_entry(model_, model_.value("module"),
                   [&](const std::string& name, const PickleValue& value) { add_whole(model_, name, value); });
  }
  void add_whole(const Opened& opened, const std::string& name, const PickleValue& value) {
    if (!opened.archive->is_tensor(value) || pieces_.contains(name)) return;
    TorchTensor tensor = opened.archive->tensor(name, value);
    if (!tensor.dtype->dtype) return pieces_.add_unsupported(name, tensor.dtype->name);
    const TensorPiece piece{opened.file, tensor.entry.bytes.begin, 0, tensor.entry.shape.numel()};
    pieces_.add(std::move(tensor.entry), {piece});
  }

  /// zero/NAME/fp32.pt is {"param": tensor}, or the flat tensor alone.
  void read_universal() {
    std::vector<Named> shapes;
    const PickleValue* known = model_.archive->pickle().find(model_.archive->root(), "param_shapes");
    if (known != nullptr && known->kind == Kind::list)
      for (const std::vector<Named>& group : groups()) shapes.insert(shapes.end(), group.begin(), group.end());
    std::set<std::string> second_names;
    const PickleValue* shared = model_.archive->pickle().find(model_.archive->root(), "shared_params");
    if (shared != nullptr && shared->kind == Kind::dict)
      for_each_entry(model_, *shared, [&](const std::string& name, const PickleValue&) { second_names.insert(name); });
    std::error_code ignored;
    for (const fs::directory_entry& each : entries_of(folder_ / "zero", ignored)) {
      // It has the second name of a shared parameter in 16 bits.
      const std::string name = each.path().filename().string();
      if (!each.is_directory(ignored) || second_names.contains(name)) continue;
      const fs::path path = each.path() / "fp32.pt";
      require<IoError>(fs::exists(path, ignored), "{}: is missing: copy the whole folder", path.string());
      const Opened opened = open(path);
      const PickleValue* param = opened.archive->pickle().find(opened.archive->root(), "param");
      TorchTensor tensor = opened.archive->tensor(name, param == nullptr ? opened.archive->root() : *param);
      require<IoError>(tensor.dtype->dtype.has_value(), "{}: masters in {} are not read", path.string(),
                       tensor.dtype->name);
      const TensorPiece piece{opened.file, tensor.entry.bytes.begin, 0, tensor.entry.shape.numel()};
      for (const Named& named : shapes)
        if (named.name == name && tensor.entry.shape.rank() == 1 && named.shape.numel() == piece.run)
          tensor.entry.shape = named.shape;
      pieces_.add(std::move(tensor.entry), {piece});
    }
    for (const Named& named : shapes)
      require<IoError>(pieces_.contains(named.name), "{}: is missing: copy the whole folder",
                       (folder_ / "zero" / named.name).string());
  }

  /// Parameters that were not trained are in the files of the model: whole, or of stage 3 each rank's part.
  void read_frozen(bool in_parts) {
    const PickleValue* shapes = model_.archive->pickle().find(model_.archive->root(), "frozen_param_shapes");
    if (shapes == nullptr || shapes->kind == Kind::none) return;
    std::vector<Opened> ranks{model_};
    for (const DeepSpeedFile& file : files_)
      if (in_parts && !file.optimizer && file.model_rank == 0 && file.rank > 0) ranks.push_back(open(file.path));
    for_each_entry(model_, *shapes, [&](const std::string& name, const PickleValue& shape) {
      const Named parameter{name, shape_of(name, shape)};
      if (pieces_.contains(name)) return;
      std::vector<Flat> flats(ranks.size());
      for (size_t i = 0; i < ranks.size(); ++i)
        append(ranks[i], name, ranks[i].of(ranks[i].value("frozen_param_fragments"), name), flats[i]);
      add_parts(parameter, flats, 0);
    });
  }
  void read_buffers() {
    const PickleValue* names = model_.archive->pickle().find(model_.archive->root(), "buffer_names");
    if (names == nullptr || names->kind != Kind::list) return;
    const PickleValue& module = model_.value("module");
    for (const size_t each : names->items) {
      const std::string& name = model_.archive->pickle()[each].text;
      if (const PickleValue* value = model_.archive->pickle().find(module, name)) add_whole(model_, name, *value);
    }
  }
  void read_shared() {
    const PickleValue* shared = model_.archive->pickle().find(model_.archive->root(), "shared_params");
    if (shared == nullptr || shared->kind == Kind::none) return;
    for_each_entry(model_, *shared, [&](const std::string& name, const PickleValue& known) {
      if (!pieces_.contains(name) && pieces_.contains(known.text)) pieces_.add_name(name, known.text);
    });
  }

  static constexpr int64_t kMostElements = int64_t{1} << 40;

  fs::path folder_;
  TensorPieces pieces_;
  std::vector<DeepSpeedFile> files_;
  std::deque<TorchArchive> archives_;
  Opened model_;
};

}  // namespace

bool holds_deepspeed_checkpoint(const fs::path& folder) { return !deepspeed_step(folder).empty(); }

TensorPieces read_deepspeed_checkpoint(const fs::path& folder) {
  const fs::path step = deepspeed_step(folder);
  std::error_code ignored;
  require<IoError>(fs::is_directory(step, ignored),
                   "{}: `latest` names {}, which is not there: copy that folder as well", folder.string(),
                   step.filename().string());
  return StepReader(step).read();
}

}  // namespace nought
