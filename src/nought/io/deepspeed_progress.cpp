#include "nought/io/deepspeed_progress.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "nought/io/strict_json.h"

namespace nought {

namespace {

using Kind = PickleValue::Kind;

constexpr double kMostUpdates = 1e12;
constexpr size_t kMostGroups = 64;

/// The dict of torch's optimizer. nullptr without one.
const PickleValue* torch_optimizer(const DeepSpeedArchive& rank) {
  const Pickle& pickle = rank.pickle();
  const PickleValue* outer = pickle.find(rank.archive->root(), "optimizer_state_dict");
  if (outer == nullptr) return nullptr;
  for (const char* key : {"base_optimizer_state", "optimizer_state_dict"})
    if (const PickleValue* base = pickle.find(*outer, key)) {
      require<IoError>(base->kind != Kind::list,
                       "{}: states that DeepSpeed saved as elastic_checkpoint are not read: save without it, or name "
                       "the folder as \"model\", which begins anew with its weights",
                       rank.archive->source());
      return base;
    }
  return outer;  // the common states of a universal checkpoint, of stage 3
}

/// What it calls its state. nullptr without one.
const PickleValue* states_of_optimizer(const DeepSpeedArchive& rank) {
  const PickleValue* optimizer = torch_optimizer(rank);
  return optimizer == nullptr ? nullptr : rank.pickle().find(*optimizer, "state");
}

/// What is kept of one flat tensor. nullptr for nothing.
const PickleValue* states_at(const DeepSpeedArchive& rank, size_t flat) {
  const PickleValue* all = states_of_optimizer(rank);
  const PickleValue* found = nullptr;
  if (all == nullptr) return found;
  rank.for_each_entry(*all, [&](const PickleValue& key, const PickleValue& value) {
    if (key.kind == Kind::integer && key.integer == static_cast<int64_t>(flat)) found = &value;
  });
  return found;
}

int64_t count_of(const DeepSpeedArchive& model, std::string_view key) {
  const PickleValue* value = model.pickle().find(model.archive->root(), key);
  return value != nullptr && value->kind == Kind::integer && value->integer > 0 && value->integer < int64_t{1} << 40
             ? value->integer
             : 0;
}

std::string text_at(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  const PickleValue* value = pickle.find(dict, key);
  std::string text = value != nullptr && value->kind == Kind::text ? value->text : "";
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return excerpt(text);
}

/// The name that a pattern of Python's re.escape() stands for, "^model\\.norm\\.weight$"; "" for any other pattern.
std::string literal_of(std::string_view pattern) {
  if (!pattern.starts_with('^') || !pattern.ends_with('$')) return "";
  std::string name;
  for (size_t at = 1; at + 1 < pattern.size(); ++at) {
    const bool escaped = pattern[at] == '\\';
    if (escaped) ++at;
    const auto c = static_cast<unsigned char>(pattern[at]);
    if (at + 1 >= pattern.size() || escaped == (std::isalnum(c) != 0 || c == '_')) return "";
    name += pattern[at];
  }
  return name;
}

}  // namespace

void read_whole_shapes(const DeepSpeedArchive& model, ForeignRun& run) {
  const Pickle& pickle = model.pickle();
  const PickleValue* found = &model.archive->root();
  for (const char* key : {"universal_checkpoint_info", "affine_map", "params"})
    if (found = pickle.find(*found, key); found == nullptr) return;
  pickle.for_each_entry(*found, [&](const PickleValue& pattern, const PickleValue& map) {
    const PickleValue* sizes = pickle.find(map, "logical_shape");
    const auto extents = sizes == nullptr ? std::nullopt : pickle.integers(*sizes);
    const std::string name = literal_of(pattern.text);
    const bool sane = extents && extents->size() <= size_t{Shape::kMaxRank} &&
                      std::ranges::all_of(*extents, [](int64_t extent) { return extent >= 0; });
    if (name.empty() || !sane) return;
    Shape shape;
    for (const int64_t extent : *extents) shape.push_back(extent);
    run.whole_shapes.emplace(name, shape);
  });
}

void note_step(const DeepSpeedArchive& opened, const PickleValue& step, ForeignRun& run) {
  const std::optional<double> number = opened.number(step);
  require<IoError>(number && *number >= 0 && *number < kMostUpdates, "{}: the optimizer's \"step\" is no count",
                   opened.archive->source());
  const auto updates = static_cast<int64_t>(*number);
  require<IoError>(run.updates == 0 || run.updates == updates,
                   "{}: the optimizer has made {} updates here and {} elsewhere: files of different steps?",
                   opened.archive->source(), updates, run.updates);
  run.updates = updates;
}

void read_groups(const DeepSpeedArchive& opened, const PickleValue& optimizer, ForeignRun& run) {
  const Pickle& pickle = opened.pickle();
  const PickleValue* groups = pickle.find(optimizer, "param_groups");
  if (groups == nullptr || groups->kind != Kind::list) return;
  const auto number = [&](const PickleValue& group, std::string_view key) {
    const PickleValue* value = pickle.find(group, key);
    return value == nullptr ? std::nullopt : opened.number(*value);
  };
  for (const size_t each : groups->items) {
    const PickleValue& values = pickle[each];
    ForeignGroup group{.eps = number(values, "eps"), .weight_decay = number(values, "weight_decay")};
    const PickleValue* betas = pickle.find(values, "betas");
    if (betas != nullptr && betas->kind == Kind::list && betas->items.size() == 2) {
      group.beta1 = opened.number(pickle.item(*betas, 0)), group.beta2 = opened.number(pickle.item(*betas, 1));
    }
    if (const auto decoupled = number(values, "decoupled_weight_decay")) group.decoupled = *decoupled != 0;
    if (std::ranges::count(run.groups, group) == 0 && run.groups.size() < kMostGroups) run.groups.push_back(group);
  }
}

std::vector<std::string> read_states(const DeepSpeedArchive& rank, size_t flat, ForeignRun& run) {
  std::vector<std::string> names;
  if (const PickleValue* optimizer = torch_optimizer(rank)) read_groups(rank, *optimizer, run);
  const PickleValue* states = states_at(rank, flat);
  if (states == nullptr) return names;
  rank.for_each_entry(*states, [&](const PickleValue& key, const PickleValue& value) {
    if (key.text == kStep) return note_step(rank, value, run);
    if (rank.archive->is_tensor(value)) names.push_back(key.text);
  });
  return names;
}

const PickleValue& state_of(const DeepSpeedArchive& rank, size_t flat, const std::string& state) {
  const PickleValue* states = states_at(rank, flat);
  const PickleValue* found = states == nullptr ? nullptr : rank.pickle().find(*states, state);
  require<IoError>(found != nullptr, "{}: has no {} of group {}, which other ranks have: files of different steps?",
                   rank.archive->source(), excerpt(state), flat);
  return *found;
}

void read_progress(const DeepSpeedArchive& model, ForeignRun& run) {
  const Pickle& pickle = model.pickle();
  const PickleValue& root = model.archive->root();
  const int64_t steps = count_of(model, "global_steps");
  if (run.updates == 0) run.updates = std::max<int64_t>(0, steps - count_of(model, "skipped_steps"));
  run.skipped = std::max<int64_t>(0, steps - run.updates);
  const std::string version = text_at(pickle, root, "ds_version");
  run.writer = fmt::format("DeepSpeed{}, {}", version.empty() ? "" : " " + version, run.writer);
  if (const PickleValue* config = pickle.find(root, "ds_config"))
    if (const PickleValue* optimizer = pickle.find(*config, "optimizer"))
      run.optimizer = text_at(pickle, *optimizer, "type");
  const PickleValue* schedule = pickle.find(root, "lr_scheduler");
  run.scheduled = schedule != nullptr && schedule->kind != Kind::none;
}

void read_loss_scale(const DeepSpeedArchive& optimizer, const PickleValue& state, ForeignRun& run) {
  const Pickle& pickle = optimizer.pickle();
  const PickleValue* scaler = pickle.find(state, "loss_scaler");
  if (scaler == nullptr || !pickle.calls(*scaler, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler")) return;
  const auto number = [&](std::string_view key) -> std::optional<double> {
    const PickleValue* value = pickle.find(*scaler, key);
    return value == nullptr ? std::nullopt : optimizer.number(*value);
  };
  const auto count = [&](std::string_view key, int64_t otherwise) {
    const double value = number(key).value_or(static_cast<double>(otherwise));
    return value >= -1 && value < kMostUpdates ? static_cast<int64_t>(value) : otherwise;
  };
  const ForeignLossScale scale{.scale = number("cur_scale").value_or(0),
                               .steps = count("cur_iter", 0),
                               .last_overflow = count("last_overflow_iter", -1),
                               .hysteresis = count("cur_hysteresis", 1)};
  if (std::isfinite(scale.scale) && scale.scale > 0) run.loss_scale = scale;
}

}  // namespace nought
