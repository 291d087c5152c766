#include "nought/weights/foreign_states.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "nought/io/strict_json.h"
#include "nought/optim/optimizer.h"

namespace nought {

namespace {

constexpr std::array kMoments{StateKind::exp_avg, StateKind::exp_avg_sq};
/// How its weights can be used all the same.
constexpr const char* kAsModel = "name the folder as \"model\", which begins anew with its weights";

bool is_adam(const std::string& optimizer) {
  std::string name;
  for (const char c : optimizer) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::count(std::array{"", "adam", "adamw", "fusedadam", "deepspeedcpuadam", "torch_adam"}, name) > 0;
}

/// What a run has of one state. nullptr for nothing.
const TensorPieces* table_of(const ForeignRun& run, StateKind kind) {
  const auto found = run.states.find(std::string(name_of(kind)));
  return found == run.states.end() ? nullptr : &found->second;
}

}  // namespace

ForeignStates::ForeignStates(const std::filesystem::path& folder, const Model& model, const OptimizerOptions& optimizer)
    : folder_(folder),
      weights_(folder, model),
      run_(read_foreign_run(folder, whole_shapes(model))),
      optimizer_(optimizer) {
  require<ConfigError>(is_adam(run_.optimizer),
                       "{}: the optimizer is {}, and read are the states of Adam and AdamW: {}", folder.string(),
                       run_.optimizer, kAsModel);
  require<IoError>(!run_.states.empty(), "{}: holds no states of an optimizer to go on from: {}", folder.string(),
                   kAsModel);
  for (const auto& [state, table] : run_.states)
    require<ConfigError>(
        std::ranges::any_of(kMoments, [&state = state](StateKind kind) { return name_of(kind) == state; }),
        "{}: the optimizer keeps \"{}\", and read are exp_avg and exp_avg_sq, as Adam and AdamW keep "
        "them: {}",
        folder.string(), excerpt(state), kAsModel);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      require<ConfigError>(parameter.role != ParameterRole::adapter,
                           "{}: is of a run that trained the model itself, and this one trains an adapter of it: name "
                           "the folder as \"model\", or remove \"adapter\"",
                           folder.string());
      if (parameter.trainable) require_optimizer(optimizer, parameter);
      check(parameter);
    }
  require<ConfigError>(std::holds_alternative<AdamOptions>(optimizer.method),
                       "{}: holds the moments of Adam, and the optimizer of this run is another one: go on with adamw, "
                       "or {}",
                       folder_.string(), kAsModel);
}

void ForeignStates::require_optimizer(const OptimizerOptions& optimizer, const Parameter& parameter) const {
  for (const StateKind kind : rule_for(optimizer, parameter).states())
    require<ConfigError>(std::ranges::count(kMoments, kind) > 0,
                         "{}: holds the moments of Adam, and the optimizer of this run keeps {} of {}: go on with "
                         "adamw, or {}",
                         folder_.string(), name_of(kind), parameter.name, kAsModel);
}

void ForeignStates::check(const Parameter& parameter) const {
  const std::string& tensor = weights_.place_of(parameter).tensor;
  for (const StateKind kind : kMoments) {
    const TensorPieces* table = table_of(run_, kind);
    const TensorEntry* found = table == nullptr ? nullptr : table->find(tensor);
    require<ConfigError>(!can_be_trained(parameter.role) || (found != nullptr) == parameter.trainable,
                         "{}: {} was {} and is {} now: set training.freeze and training.trainable as that run had "
                         "them, or {}",
                         folder_.string(), tensor, found != nullptr ? "trained" : "frozen",
                         parameter.trainable ? "trained" : "frozen", kAsModel);
    if (found == nullptr) continue;
    const Shape whole = run_.weights.find(tensor)->shape;
    require<IoError>(found->shape == whole, "{}: {} of {} has shape {}, the weight {}", folder_.string(), name_of(kind),
                     tensor, found->shape, whole);
  }
}

void ForeignStates::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                         const Tensor& destination) const {
  const TensorPieces* table = kind == StateKind::master ? &run_.weights : table_of(run_, kind);
  require(table != nullptr, "{} holds no {}", folder_.string(), name_of(kind));
  const StoredPlace& place = weights_.place_of(parameter);
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    table->read(place.tensor, {place.first + interval.begin, place.first + interval.end}, values);
  });
}

std::string ForeignStates::changes() const {
  const auto& adam = std::get<AdamOptions>(optimizer_.method);
  std::vector<std::string> lines;
  const auto compare = [&](const char* key, std::optional<double> ForeignGroup::*value, double now) {
    std::set<double> then;
    for (const ForeignGroup& group : run_.groups)
      if (group.*value) then.insert(*(group.*value));
    // Groups without a decay are those of norms and biases.
    if (value == &ForeignGroup::weight_decay && then.size() > 1) then.erase(0);
    if (!then.empty() && then != std::set{now})
      lines.push_back(fmt::format("{} was {} and is {}", key, fmt::join(then, " and "), now));
  };
  compare("adam_beta1", &ForeignGroup::beta1, adam.beta1);
  compare("adam_beta2", &ForeignGroup::beta2, adam.beta2);
  compare("adam_epsilon", &ForeignGroup::eps, adam.eps);
  compare("weight_decay", &ForeignGroup::weight_decay, optimizer_.weight_decay);
  const auto undecayed = [](const ForeignGroup& group) { return group.weight_decay == 0; };
  if (!run_.groups.empty() && optimizer_.weight_decay != 0 && run_.groups.front().weight_decay &&
      std::ranges::any_of(run_.groups, undecayed) == optimizer_.decay_all)
    lines.push_back(fmt::format("weight_decay_all was {} and is {}", !optimizer_.decay_all, optimizer_.decay_all));
  const auto other_decay = [&](const ForeignGroup& group) {
    return group.decoupled && *group.decoupled != adam.decoupled_decay && group.weight_decay.value_or(0) != 0;
  };
  if (std::ranges::any_of(run_.groups, other_decay))
    lines.push_back(fmt::format("optim was {} and is {}", adam.decoupled_decay ? "Adam" : "AdamW",
                                adam.decoupled_decay ? "AdamW" : "Adam"));
  if (lines.empty()) return "";
  return fmt::format(
      "{}: the optimizer goes on otherwise than it was: {}: set them in \"training\", unless that is meant",
      folder_.string(), fmt::join(lines, ", "));
}

std::vector<std::string> ForeignStates::describe() const {
  std::vector<std::string> lines{fmt::format(
      "{} was written by {}: masters, moments and the step go on; {}its place in the data and its random numbers do "
      "not: the run goes on with the rate and the samples that its own plan has for step {}",
      folder_.string(), run_.writer, run_.scheduled ? "its scheduler, " : "", run_.updates + run_.skipped + 1)};
  if (std::string others = changes(); !others.empty()) lines.push_back(std::move(others));
  return lines;
}

}  // namespace nought
