#include "nought/io/deepspeed_numbered.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "nought/io/deepspeed_progress.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

using Kind = PickleValue::Kind;

struct NumberedParameter {
  std::string name;
  Shape shape;
  Interval bytes;  // where the file has the module's values
};
using NumberedGroups = std::vector<std::vector<NumberedParameter>>;

class NumberedReader {
 public:
  NumberedReader(const DeepSpeedArchive& model, const PickleValue& outer, ForeignRun& run)
      : model_(model), pickle_(model.pickle()), outer_(outer), run_(run) {
    const PickleValue* inner = pickle_.find(outer, "optimizer_state_dict");
    optimizer_ = inner == nullptr ? &outer : inner;
    groups_ = &model_.list_of(*optimizer_, "param_groups");
    flats_ = list("fp32_groups_flat"), masters_ = list("fp32_groups");
    model_.for_each_entry(model_.of(*optimizer_, "state"), [&](const PickleValue& key, const PickleValue& value) {
      if (key.kind == Kind::integer) states_.emplace(key.integer, &value);
    });
  }

  void read() {
    read_groups(model_, *optimizer_, run_);
    read_loss_scale_of_masters();
    const NumberedGroups groups = named_groups();
    for (size_t group = 0; group < groups.size(); ++group) {
      if (masters_ != nullptr) add_masters(groups[group], pickle_.item(*masters_, group));
      if (flats_ != nullptr) add_flat(groups[group], pickle_.item(*flats_, group), run_.weights);
      const std::vector<int64_t> numbers = numbers_of(group);
      for (size_t i = 0; i < numbers.size(); ++i) add_states(groups[group], i, numbers[i]);
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<IoError>("{}: {}: name the folder as \"model\", which begins anew with its weights", model_.archive->source(),
                  fmt::format(format, std::forward<Args>(args)...));
  }
  const PickleValue* list(std::string_view key) const {
    const PickleValue* found = pickle_.find(outer_, key);
    if (found == nullptr) return nullptr;
    if (found->kind != Kind::list || found->items.size() != groups_->items.size())
      refuse("\"{}\" are not those of {} groups", key, groups_->items.size());
    return found;
  }
  std::vector<int64_t> numbers_of(size_t group) const {
    const auto numbers = pickle_.integers(model_.of(pickle_.item(*groups_, group), "params"));
    if (!numbers) refuse("group {} of its optimizer has no numbers of parameters", group);
    return *numbers;
  }
  const PickleValue* state_of_number(int64_t number) const {
    const auto found = states_.find(number);
    return found == states_.end() ? nullptr : found->second;
  }
  Shape shape_of(const PickleValue& tensor) const { return model_.archive->tensor("parameter", tensor).entry.shape; }

  /// The parameters of the module, in its order.
  std::vector<NumberedParameter> parameters() const {
    std::set<std::string> buffers;
    if (const PickleValue* names = pickle_.find(model_.archive->root(), "buffer_names");
        names != nullptr && names->kind == Kind::list)
      for (const size_t each : names->items) buffers.insert(pickle_[each].text);
    std::vector<NumberedParameter> all;
    model_.for_each_entry(model_.value("module"), [&](const PickleValue& name, const PickleValue& value) {
      if (!model_.archive->is_tensor(value) || buffers.contains(name.text)) return;
      const TensorEntry entry = model_.archive->tensor(name.text, value).entry;
      all.push_back({name.text, entry.shape, entry.bytes});
    });
    return all;
  }
  std::string_view bytes_of(const NumberedParameter& parameter) const {
    const Interval at = parameter.bytes;
    return {reinterpret_cast<const char*>(model_.bytes.data()) + at.begin, static_cast<size_t>(at.size())};
  }
  /// Without matrices that are those of an earlier name: tied ones, which DeepSpeed saves twice.
  std::vector<NumberedParameter> without_copies(const std::vector<NumberedParameter>& all) const {
    std::vector<NumberedParameter> some;
    std::set<std::pair<std::string, std::string_view>> seen;
    for (const NumberedParameter& each : all)
      if (each.shape.rank() < 2 || seen.emplace(each.shape.str(), bytes_of(each)).second) some.push_back(each);
    return some;
  }

  NumberedGroups named_groups() const {
    if (groups_->items.size() > 2)
      refuse(
          "its optimizer numbers the parameters of {} groups, and nothing tells which "
          "number is of which",
          groups_->items.size());
    const std::vector<NumberedParameter> all = parameters();
    for (const std::vector<NumberedParameter>& some : {all, without_copies(all)}) {
      NumberedGroups matrices_first(groups_->items.size());
      for (const NumberedParameter& each : some)
        matrices_first[each.shape.rank() > 1 ? 0 : groups_->items.size() - 1].push_back(each);
      if (fits(matrices_first)) return matrices_first;
      std::reverse(matrices_first.begin(), matrices_first.end());
      if (fits(matrices_first)) return matrices_first;
    }
    refuse("its optimizer numbers parameters, and their shapes are not those of the module in its order");
  }
  bool fits(const NumberedGroups& groups) const {
    for (size_t group = 0; group < groups.size(); ++group)
      if (!fits(groups[group], group)) return false;
    return true;
  }
  bool fits(const std::vector<NumberedParameter>& group, size_t index) const {
    if (flats_ != nullptr) {
      int64_t numel = 0;
      for (const NumberedParameter& each : group) numel += each.shape.numel();
      return shape_of(pickle_.item(*flats_, index)) == Shape{numel};
    }
    const std::vector<int64_t> numbers = numbers_of(index);
    if (numbers.size() != group.size()) return false;
    for (size_t i = 0; i < group.size(); ++i) {
      const PickleValue* state = state_of_number(numbers[i]);
      if (state == nullptr) continue;  // it never got a gradient
      bool agrees = true;
      model_.for_each_entry(*state, [&](const PickleValue& key, const PickleValue& value) {
        agrees =
            agrees && (key.text == kStep || !model_.archive->is_tensor(value) || shape_of(value) == group[i].shape);
      });
      if (!agrees) return false;
    }
    return true;
  }

  void add_one(const NumberedParameter& parameter, const PickleValue& value, TensorPieces& table) const {
    TorchTensor tensor = model_.archive->tensor(parameter.name, value);
    if (!tensor.dtype->dtype || tensor.entry.shape != parameter.shape)
      refuse("what its optimizer keeps of \"{}\" is {} {}", excerpt(parameter.name), tensor.dtype->name,
             tensor.entry.shape);
    const TensorPiece piece{model_.file, tensor.entry.bytes.begin, 0, tensor.entry.shape.numel()};
    table.add(std::move(tensor.entry), {piece});
  }
  void add_masters(const std::vector<NumberedParameter>& group, const PickleValue& tensors) const {
    if (tensors.kind != Kind::list || tensors.items.size() != group.size())
      refuse("a group of its masters is of another number than that of {} parameters", group.size());
    for (size_t i = 0; i < group.size(); ++i) add_one(group[i], pickle_.item(tensors, i), run_.weights);
  }
  void add_flat(const std::vector<NumberedParameter>& group, const PickleValue& value, TensorPieces& table) const {
    DeepSpeedFlat flat;
    flat.append(model_, "fp32_groups_flat", value);
    int64_t at = 0;
    for (const NumberedParameter& each : group) {
      std::vector<TensorPiece> pieces;
      flat.cut({at, at + each.shape.numel()}, 0, pieces);
      table.add({each.name, flat.dtype, each.shape, {}}, std::move(pieces));
      at += each.shape.numel();
    }
  }
  void add_states(const std::vector<NumberedParameter>& group, size_t place, int64_t number) {
    const PickleValue* state = state_of_number(number);
    if (state == nullptr) return;
    model_.for_each_entry(*state, [&](const PickleValue& key, const PickleValue& value) {
      if (key.text == kStep) return note_step(model_, value, run_);
      if (!model_.archive->is_tensor(value)) return;
      TensorPieces& table = run_.table(key.text);
      flats_ == nullptr ? add_one(group[place], value, table) : add_flat(group, value, table);
    });
  }
  /// The scale stands beside the masters, without an object of its own.
  void read_loss_scale_of_masters() {
    const auto number = [&](std::string_view key, double otherwise) {
      const PickleValue* value = pickle_.find(outer_, key);
      const std::optional<double> found = value == nullptr ? std::nullopt : model_.number(*value);
      return found && std::isfinite(*found) && std::abs(*found) < kMostSteps ? *found : otherwise;
    };
    const double scale = number("cur_scale", 0);
    if (scale <= 0 || number("dynamic_loss_scale", 0) == 0) return;
    run_.loss_scale = ForeignLossScale{.scale = scale,
                                       .steps = static_cast<int64_t>(number("cur_iter", 0)),
                                       .last_overflow = static_cast<int64_t>(number("last_overflow_iter", -1))};
  }

  static constexpr double kMostSteps = 1e12;

  const DeepSpeedArchive& model_;
  const Pickle& pickle_;
  const PickleValue& outer_;
  ForeignRun& run_;
  std::map<int64_t, const PickleValue*> states_;  // by number
  const PickleValue *optimizer_ = nullptr, *groups_ = nullptr, *flats_ = nullptr, *masters_ = nullptr;
};

}  // namespace

void read_numbered_states(const DeepSpeedArchive& model, ForeignRun& run) {
  const PickleValue* optimizer = model.pickle().find(model.archive->root(), "optimizer");
  if (optimizer == nullptr || optimizer->kind == Kind::none) return;
  NumberedReader(model, *optimizer, run).read();
}

}  // namespace nought
