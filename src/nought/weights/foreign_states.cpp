#include "nought/weights/foreign_states.h"

#include <algorithm>
#include <array>
#include <cctype>

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
    : folder_(folder), weights_(folder, model), run_(read_foreign_run(folder)) {
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
  if (kind == StateKind::master) return weights_.fill(kind, parameter, elements, destination);
  const TensorPieces* table = table_of(run_, kind);
  require(table != nullptr, "{} holds no {}", folder_.string(), name_of(kind));
  const StoredPlace& place = weights_.place_of(parameter);
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    table->read(place.tensor, {place.first + interval.begin, place.first + interval.end}, values);
  });
}

std::string ForeignStates::describe() const {
  return fmt::format(
      "{} was written by {}: masters, moments and the step go on; {}its place in the data and its random numbers do "
      "not: the run goes on with the rate and the samples that its own plan has for step {}",
      folder_.string(), run_.writer, run_.scheduled ? "its scheduler, " : "", run_.updates + run_.skipped + 1);
}

}  // namespace nought
