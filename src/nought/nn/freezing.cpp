#include "nought/nn/freezing.h"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <utility>

#include "nought/base/text.h"
#include "nought/nn/model.h"

namespace nought {

namespace {

/// The parameter whose name holds what is most like the pattern; among several the one whose whole name is.
std::string nearest_parameter(std::string pattern, const Model& model) {
  std::erase_if(pattern, [](char c) { return c == '\\' || c == '^' || c == '$'; });
  std::string nearest;
  std::pair<size_t, size_t> least{SIZE_MAX, SIZE_MAX};
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const std::pair distance{edit_distance_within(pattern, parameter.name), edit_distance(pattern, parameter.name)};
      if (distance < least) least = distance, nearest = parameter.name;
    }
  return nearest;
}

/// One list of patterns. What matches which pattern is looked for in every parameter, so that none goes unused.
class Patterns {
 public:
  Patterns(const char* key, const std::vector<std::string>& patterns, const Model& model) : key_(key) {
    for (const std::string& pattern : patterns) add(pattern, model);
  }
  bool match(const Parameter& parameter) const {
    return std::any_of(compiled_.begin(), compiled_.end(),
                       [&](const std::regex& each) { return std::regex_search(parameter.name, each); });
  }

 private:
  void add(const std::string& pattern, const Model& model) {
    try {
      compiled_.emplace_back(pattern);
    } catch (const std::regex_error&) {
      fail<ConfigError>("{}: \"{}\" is not a regular expression", key_, pattern);
    }
    bool untrained = false;
    for (const auto& unit : model.units())
      for (const Parameter& parameter : unit->parameters())
        if (std::regex_search(parameter.name, compiled_.back())) {
          if (can_be_trained(parameter.role)) return;
          untrained = true;
        }
    if (untrained)
      fail<ConfigError>("{}: \"{}\" matches nothing but what is never trained: {} has no gradient", key_, pattern,
                        nearest_parameter(pattern, model));
    fail<ConfigError>("{}: \"{}\" matches no parameter; the nearest is {}", key_, pattern,
                      nearest_parameter(pattern, model));
  }

  const char* key_;
  std::vector<std::regex> compiled_;
};

}  // namespace

void apply(const Freezing& freezing, Model& model) {
  if (freezing.empty()) return;
  require<ConfigError>(!freezing.freeze.empty(),
                       "training.trainable has no effect without training.freeze, as everything is trained; to train "
                       "only what it names, write \"freeze\": [\".\"]");
  const Patterns frozen("training.freeze", freezing.freeze, model);
  const Patterns trained("training.trainable", freezing.trainable, model);
  for (const auto& unit : model.units())
    unit->choose_trained(
        [&](const Parameter& parameter) { return trained.match(parameter) || !frozen.match(parameter); });
  const bool any = std::any_of(model.units().begin(), model.units().end(), [](const auto& u) { return u->trained(); });
  require<ConfigError>(any,
                       "training.freeze leaves no parameter to train: add what is to be trained to "
                       "training.trainable");
}

}  // namespace nought
