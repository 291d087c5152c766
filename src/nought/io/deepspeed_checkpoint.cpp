#include "nought/io/deepspeed_checkpoint.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "nought/base/checked_math.h"
#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/base/open_file.h"
#include "nought/io/deepspeed_archive.h"
#include "nought/io/deepspeed_files.h"
#include "nought/io/deepspeed_numbered.h"
#include "nought/io/deepspeed_progress.h"
#include "nought/io/model_ranks.h"
#include "nought/io/strict_json.h"
#include "nought/io/torch_archive.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

using Kind = PickleValue::Kind;
using Opened = DeepSpeedArchive;
using Flat = DeepSpeedFlat;

/// What stands beside the tensors of a step. Of the scaler's state nothing is used.
constexpr std::string_view kGlobalsOfSteps[] = {"deepspeed.runtime.fp16.loss_scaler.LossScaler",
                                                "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
                                                "deepspeed.runtime.zero.config.ZeroStageEnum",
                                                "deepspeed.utils.tensor_fragment.fragment_address",
                                                "__builtin__.set",
                                                "builtins.set"};

class StepReader {
 public:
  /// model_rank: which tensor parallel rank's files are read. with_states: also what the optimizer keeps.
  StepReader(const fs::path& folder, int64_t model_rank, bool with_states)
      : folder_(folder), with_states_(with_states), model_rank_(model_rank), run_(folder) {}

  ForeignRun read() {
    std::error_code ignored;
    for (const fs::directory_entry& each : entries_of(folder_, ignored))
      require<IoError>(!each.path().filename().string().starts_with("layer_"),
                       "{}: experts or stages of a pipeline: DeepSpeed's ds_to_universal.py merges them, and what it "
                       "writes is read",
                       each.path().string());
    files_ = deepspeed_files(folder_);
    std::erase_if(files_, [&](const DeepSpeedFile& file) { return file.model_rank != model_rank_; });
    const DeepSpeedFile* model = first(false);
    require<IoError>(model != nullptr,
                     "{}: no mp_rank_{:02}_model_states.pt, which says the shapes: copy the whole folder",
                     folder_.string(), model_rank_);
    model_ = open(model->path);
    if (fs::is_directory(folder_ / "zero", ignored)) {
      read_universal();
    } else if (first(true) == nullptr) {
      read_module();
    } else {
      read_masters();
    }
    read_frozen(model->of_rank);
    read_buffers();
    read_shared();
    if (with_states_) read_progress(model_, run_);
    read_whole_shapes(model_, run_);
    return std::move(run_);
  }

 private:
  const DeepSpeedFile* first(bool optimizer) const {
    const auto found = std::find_if(files_.begin(), files_.end(),
                                    [&](const DeepSpeedFile& file) { return file.optimizer == optimizer; });
    return found == files_.end() ? nullptr : &*found;
  }
  Opened open(const fs::path& path) { return open(path, run_.weights); }
  Opened open(const fs::path& path, TensorPieces& table) {
    const size_t file = table.open(path);
    archives_.emplace_back(table.bytes(file), path.string(), kGlobalsOfSteps);
    return {file, table.bytes(file), &archives_.back()};
  }
  /// The files of all ranks, of which there must be `count`.
  std::vector<DeepSpeedFile> of_ranks(bool optimizer, int64_t count) const {
    std::vector<DeepSpeedFile> found;
    for (const DeepSpeedFile& file : files_)
      if (file.optimizer == optimizer) found.push_back(file);
    for (int64_t rank = 0; rank < std::max(count, std::ssize(found)); ++rank)
      require<IoError>(rank < std::ssize(found) && rank < count && found[static_cast<size_t>(rank)].rank == rank,
                       "{}: {} ranks wrote this step, and the {} of rank {} is {}: copy the whole folder",
                       folder_.string(), count, optimizer ? "*_optim_states.pt" : "*_model_states.pt", rank,
                       rank < count ? "missing" : "one too many");
    return found;
  }

  /// The shape of a parameter; its number of elements is checked against overflow.
  Shape shape_of(const std::string& name, const PickleValue& value) const {
    const auto sizes = model_.pickle().integers(value);
    const bool sane = sizes && sizes->size() <= static_cast<size_t>(Shape::kMaxRank);
    require<IoError>(sane, "{}: parameter \"{}\" has no shape of up to {} dimensions", model_.archive->source(),
                     excerpt(name), int{Shape::kMaxRank});
    require<IoError>(checked_product(1, *sizes, kMostElements - 1).has_value(),
                     "{}: parameter \"{}\" has an absurd shape", model_.archive->source(), excerpt(name));
    Shape shape;
    for (const int64_t extent : *sizes) shape.push_back(extent);
    return shape;
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
      model_.for_each_entry(model_.pickle()[group], [&](const PickleValue& name, const PickleValue& shape) {
        groups.back().push_back({name.text, shape_of(name.text, shape)});
      });
    }
    return groups;
  }

  static void add(const Named& parameter, DType dtype, std::vector<TensorPiece> pieces, TensorPieces& table) {
    table.add({parameter.name, dtype, parameter.shape, {}}, std::move(pieces));
  }

  void read_masters() {
    const Opened one = open(first(true)->path);
    const PickleValue& state = one.value("optimizer_state_dict");
    const PickleValue* stage = one.pickle().find(state, "zero_stage");
    // BF16_Optimizer says none. The others write an int, or the enum of it.
    const int64_t number = stage == nullptr ? 1 : integer_of(*one.archive, *stage);
    const PickleValue& partitions = one.of(state, "partition_count");
    int64_t ranks = partitions.integer;
    if (const auto all = one.pickle().integers(partitions); all && !all->empty())
      ranks = *std::max_element(all->begin(), all->end());
    require<IoError>(number >= 0 && number <= 3, "{}: ZeRO stage {}, known are 0 to 3", one.archive->source(), number);
    std::vector<Opened> opened;
    for (const DeepSpeedFile& file : of_ranks(true, ranks)) opened.push_back(open(file.path));
    run_.writer = fmt::format("ZeRO stage {} on {} rank{}", number, ranks, ranks == 1 ? "" : "s");
    number == 3 ? read_third_stage(opened) : read_first_stages(opened);
    if (with_states_) read_loss_scale(one, state, run_);
  }
  static int64_t integer_of(const TorchArchive& archive, const PickleValue& value) {
    if (value.kind != Kind::call) return value.integer;
    const auto arguments = archive.pickle().integers(archive.pickle().item(value, 1));
    return arguments && !arguments->empty() ? arguments->front() : -1;
  }

  /// Every rank has its part of the flat tensor of each group.
  void read_first_stages(const std::vector<Opened>& ranks) {
    constexpr const char* kMasters = "single_partition_of_fp32_groups";
    const std::vector<std::vector<Named>> all = groups();
    const int64_t align = 2 * std::ssize(ranks);
    for (size_t group = 0; group < all.size(); ++group) {
      Flat flat;
      for (const Opened& rank : ranks) {
        const PickleValue& list = rank.list_of(rank.value("optimizer_state_dict"), kMasters);
        require<IoError>(list.items.size() == all.size(), "{}: masters of {} groups, and shapes of {}",
                         rank.archive->source(), list.items.size(), all.size());
        flat.append(rank, kMasters, rank.pickle().item(list, group));
      }
      const std::vector<int64_t> paddings = paddings_of(ranks.front(), group, all[group].size());
      int64_t needed = 0;
      for (size_t i = 0; i < all[group].size(); ++i) needed += all[group][i].shape.numel() + paddings[i];
      require<IoError>(round_up(needed, align) == round_up(flat.numel, align),
                       "{}: group {} has {} masters, and its shapes need {}: files of different steps?",
                       folder_.string(), group, flat.numel, needed);
      cut_group(all[group], paddings, flat, run_.weights);
      for (const std::string& state : states_of(ranks.front(), group)) {
        Flat values;
        for (size_t rank = 0; rank < ranks.size(); ++rank)
          values.append(ranks[rank], state, state_of(ranks[rank], group, state), flat.segments[rank].numel);
        require<IoError>(values.numel == flat.numel, "{}: group {} has {} masters, and {} of {}", folder_.string(),
                         group, flat.numel, values.numel, state);
        cut_group(all[group], paddings, values, run_.table(state));
      }
    }
  }
  static void cut_group(const std::vector<Named>& group, const std::vector<int64_t>& paddings, const Flat& flat,
                        TensorPieces& table) {
    int64_t at = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      const Interval elements{at, at + group[i].shape.numel()};
      std::vector<TensorPiece> pieces;
      flat.cut(elements, 0, pieces);
      add(group[i], flat.dtype, std::move(pieces), table);
      at = elements.end + paddings[i];
    }
  }
  /// The states that a rank keeps of a flat tensor, but for its step; none if they are not asked for.
  std::vector<std::string> states_of(const Opened& rank, size_t flat) {
    return with_states_ ? read_states(rank, flat, run_) : std::vector<std::string>();
  }
  /// How many elements of no parameter follow each one.
  static std::vector<int64_t> paddings_of(const Opened& rank, size_t group, size_t count) {
    const Pickle& pickle = rank.pickle();
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
    constexpr const char* kMasters = "fp32_flat_groups";
    std::vector<Flat> flats(ranks.size());
    std::map<std::string, std::vector<Flat>> states;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const PickleValue& state = ranks[rank].value("optimizer_state_dict");
      refuse_other_partitions(ranks[rank], state, std::ssize(ranks));
      const PickleValue& masters = ranks[rank].list_of(state, kMasters);
      for (size_t flat = 0; flat < masters.items.size(); ++flat) {
        flats[rank].append(ranks[rank], kMasters, ranks[rank].pickle().item(masters, flat));
        for (const std::string& each : states_of(ranks[rank], flat)) {
          std::vector<Flat>& values = states.try_emplace(each, ranks.size()).first->second;
          values[rank].append(ranks[rank], each, state_of(ranks[rank], flat, each));
        }
      }
      require<IoError>(flats[rank].dtype == flats[0].dtype, "{}: masters of another dtype than those of rank 0",
                       ranks[rank].archive->source());
    }
    cut_parts(ranks, flats, run_.weights);
    for (const auto& [name, values] : states) cut_parts(ranks, values, run_.table(name));
  }
  void cut_parts(const std::vector<Opened>& ranks, const std::vector<Flat>& flats, TensorPieces& table) const {
    int64_t at = 0;
    for (const std::vector<Named>& group : groups())
      for (const Named& parameter : group) at += add_parts(parameter, flats, at, table);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      require<IoError>(flats[rank].numel == at,
                       "{}: {} masters, or states of them, and the shapes need {}: files of different steps?",
                       ranks[rank].archive->source(), flats[rank].numel, at);
  }
  static void refuse_other_partitions(const Opened& rank, const PickleValue& state, int64_t ranks) {
    const Pickle& pickle = rank.pickle();
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
  static int64_t add_parts(const Named& parameter, const std::vector<Flat>& flats, int64_t at, TensorPieces& table) {
    const int64_t numel = parameter.shape.numel(), ranks = std::ssize(flats), part = ceil_div(numel, ranks);
    std::vector<TensorPiece> pieces;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t count = std::clamp<int64_t>(numel - rank * part, 0, part);
      flats[static_cast<size_t>(rank)].cut({at, at + count}, rank * part, pieces);
    }
    add(parameter, flats[0].dtype, std::move(pieces), table);
    return part;
  }

  /// Weights of a run without ZeRO: those of the module.
  void read_module() {
    const PickleValue* shapes = model_.pickle().find(model_.archive->root(), "param_shapes");
    require<IoError>(shapes == nullptr || shapes->kind == Kind::none,
                     "{}: no *_optim_states.pt, where the masters of ZeRO's ranks are: copy the whole folder",
                     folder_.string());
    run_.writer = "without ZeRO";
    if (with_states_) read_numbered_states(model_, run_);
    model_.for_each_entry(model_.value("module"), [&](const PickleValue& name, const PickleValue& value) {
      add_whole(model_, name.text, value);
    });
  }
  void add_whole(const Opened& opened, const std::string& name, const PickleValue& value) {
    if (!opened.archive->is_tensor(value) || run_.weights.contains(name)) return;
    TorchTensor tensor = opened.archive->tensor(name, value);
    if (!tensor.dtype->dtype) return run_.weights.add_unsupported(name, tensor.dtype->name);
    const TensorPiece piece{opened.file, tensor.entry.bytes.begin, 0, tensor.entry.shape.numel()};
    run_.weights.add(std::move(tensor.entry), {piece});
  }

  /// zero/NAME/fp32.pt is {"param": tensor}, or the flat tensor alone; so are the states beside it.
  void read_universal() {
    run_.writer = "universal";
    std::map<std::string, Shape> shapes;
    const PickleValue* known = model_.pickle().find(model_.archive->root(), "param_shapes");
    if (known != nullptr && known->kind == Kind::list)
      for (const std::vector<Named>& group : groups())
        for (const Named& named : group) shapes.emplace(named.name, named.shape);
    std::set<std::string> second_names;
    const PickleValue* shared = model_.pickle().find(model_.archive->root(), "shared_params");
    if (shared != nullptr && shared->kind == Kind::dict)
      model_.for_each_entry(*shared, [&](const PickleValue& name, const auto&) { second_names.insert(name.text); });
    std::error_code ignored;
    for (const fs::directory_entry& each : entries_of(folder_ / "zero", ignored)) {
      // It has the second name of a shared parameter in 16 bits.
      const std::string name = each.path().filename().string();
      if (!each.is_directory(ignored) || second_names.contains(name)) continue;
      const fs::path path = each.path() / "fp32.pt";
      require<IoError>(fs::exists(path, ignored), "{}: is missing: copy the whole folder", path.string());
      const auto shape = shapes.find(name);
      const Shape* whole = shape == shapes.end() ? nullptr : &shape->second;
      read_whole_state(name, path, whole, run_.weights);
      if (with_states_) read_states_of(name, each.path(), whole);
    }
    for (const auto& [name, shape] : shapes)
      require<IoError>(run_.weights.contains(name), "{}: is missing: copy the whole folder",
                       (folder_ / "zero" / name).string());
    if (const fs::path path = folder_ / "zero" / "optimizer_state.pt"; with_states_ && fs::exists(path, ignored)) {
      const Opened common = open(path);
      read_states(common, 0, run_);
      read_loss_scale(common, common.archive->root(), run_);
    }
  }
  /// shape: of the parameter, where it is known; a flat tensor of as many elements gets it.
  void read_whole_state(const std::string& name, const fs::path& path, const Shape* shape, TensorPieces& table) {
    const Opened opened = open(path, table);
    const PickleValue* param = opened.pickle().find(opened.archive->root(), "param");
    TorchTensor tensor = opened.archive->tensor(name, param == nullptr ? opened.archive->root() : *param);
    require<IoError>(tensor.dtype->dtype.has_value(), "{}: masters and states in {} are not read", path.string(),
                     tensor.dtype->name);
    const TensorPiece piece{opened.file, tensor.entry.bytes.begin, 0, tensor.entry.shape.numel()};
    if (shape != nullptr && tensor.entry.shape.rank() == 1 && shape->numel() == piece.run) tensor.entry.shape = *shape;
    table.add(std::move(tensor.entry), {piece});
  }
  void read_states_of(const std::string& name, const fs::path& folder, const Shape* shape) {
    std::error_code ignored;
    for (const fs::directory_entry& file : entries_of(folder, ignored)) {
      const std::string state = file.path().stem().string();
      if (file.path().extension() != ".pt" || state == "fp32") continue;
      if (state != kStep) {
        read_whole_state(name, file.path(), shape, run_.table(state));
      } else {
        const Opened opened = open(file.path());
        note_step(opened, opened.archive->root(), run_);
      }
    }
  }

  /// Parameters that were not trained are in the files of the model: whole, or of stage 3 each rank's part.
  void read_frozen(bool in_parts) {
    const PickleValue* shapes = model_.pickle().find(model_.archive->root(), "frozen_param_shapes");
    if (shapes == nullptr || shapes->kind == Kind::none) return;
    std::vector<Opened> ranks{model_};
    const PickleValue* world = model_.pickle().find(model_.archive->root(), "dp_world_size");
    if (in_parts)
      for (const DeepSpeedFile& file : of_ranks(false, world == nullptr ? 1 : world->integer))
        if (file.rank > 0) ranks.push_back(open(file.path));
    model_.for_each_entry(*shapes, [&](const PickleValue& key, const PickleValue& shape) {
      const Named parameter{key.text, shape_of(key.text, shape)};
      if (run_.weights.contains(key.text)) return;
      std::vector<Flat> flats(ranks.size());
      for (size_t i = 0; i < ranks.size(); ++i)
        flats[i].append(ranks[i], key.text, ranks[i].of(ranks[i].value("frozen_param_fragments"), key.text));
      add_parts(parameter, flats, 0, run_.weights);
    });
  }
  void read_buffers() {
    const PickleValue* names = model_.pickle().find(model_.archive->root(), "buffer_names");
    if (names == nullptr || names->kind != Kind::list) return;
    const PickleValue& module = model_.value("module");
    for (const size_t each : names->items) {
      const std::string& name = model_.pickle()[each].text;
      if (const PickleValue* value = model_.pickle().find(module, name)) add_whole(model_, name, *value);
    }
  }
  void read_shared() {
    const PickleValue* shared = model_.pickle().find(model_.archive->root(), "shared_params");
    if (shared == nullptr || shared->kind == Kind::none) return;
    model_.for_each_entry(*shared, [&](const PickleValue& name, const PickleValue& known) {
      run_.second_names.emplace(name.text, known.text);
    });
  }

  static constexpr int64_t kMostElements = int64_t{1} << 40;

  fs::path folder_;
  bool with_states_;
  int64_t model_rank_;
  ForeignRun run_;
  std::vector<DeepSpeedFile> files_;
  std::deque<TorchArchive> archives_;
  Opened model_;
};

}  // namespace

std::span<const std::string_view> deepspeed_globals() { return kGlobalsOfSteps; }

bool holds_deepspeed_checkpoint(const fs::path& folder) { return !deepspeed_step(folder).empty(); }

namespace {

constexpr int64_t kMostModelRanks = 1024;

/// How many tensor parallel ranks wrote a step. A universal checkpoint has all of them in one.
int64_t model_ranks_of(const fs::path& step) {
  std::error_code ignored;
  int64_t ranks = 1;
  if (fs::is_directory(step / "zero", ignored)) return ranks;
  for (const DeepSpeedFile& file : deepspeed_files(step)) ranks = std::max(ranks, file.model_rank + 1);
  require<IoError>(ranks <= kMostModelRanks, "{}: files of tensor parallel rank {}, read are up to {} ranks",
                   step.string(), ranks - 1, kMostModelRanks);
  return ranks;
}

void name_shared(ForeignRun& run) {
  for (const auto& [name, first] : run.second_names) {
    if (!run.weights.contains(name) && run.weights.contains(first)) run.weights.add_name(name, first);
    for (auto& [state, table] : run.states)
      if (!table.contains(name) && table.contains(first)) table.add_name(name, first);
  }
}

ForeignRun read_step(const fs::path& folder, const WholeShapes& shapes, bool with_states) {
  const fs::path step = deepspeed_step(folder);
  std::error_code ignored;
  require<IoError>(fs::is_directory(step, ignored),
                   "{}: `latest` names {}, which is not there: copy that folder as well", folder.string(),
                   step.filename().string());
  std::vector<ForeignRun> ranks;
  const int64_t all = model_ranks_of(step);
  for (int64_t rank = 0; rank < all; ++rank) ranks.push_back(StepReader(step, rank, with_states).read());
  ForeignRun run = all == 1 ? std::move(ranks[0]) : join_model_ranks(ranks, shapes);
  name_shared(run);
  return run;
}

}  // namespace

TensorPieces read_deepspeed_checkpoint(const fs::path& folder, const WholeShapes& shapes) {
  return std::move(read_step(folder, shapes, /*with_states=*/false).weights);
}

ForeignRun read_deepspeed_run(const fs::path& folder, const WholeShapes& shapes) {
  return read_step(folder, shapes, /*with_states=*/true);
}

}  // namespace nought
