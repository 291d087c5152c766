#include "nought/nn/patterns.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "nought/base/text.h"

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

}  // namespace

ParameterPatterns::ParameterPatterns(std::string key, const std::vector<std::string>& patterns, const Model& model,
                                     const Choice& choice)
    : key_(std::move(key)) {
  for (const std::string& pattern : patterns) add(pattern, model, choice);
}

bool ParameterPatterns::match(const Parameter& parameter) const {
  return std::any_of(compiled_.begin(), compiled_.end(),
                     [&](const NamePattern& each) { return each.found_in(parameter.name); });
}

void ParameterPatterns::add(const std::string& pattern, const Model& model, const Choice& choice) {
  try {
    compiled_.emplace_back(pattern);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}", key_, error.what());
  }
  bool matches_others = false;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      if (compiled_.back().found_in(parameter.name)) {
        if (choice.is_eligible(parameter.role)) return;
        matches_others = true;
      }
  if (matches_others)
    fail<ConfigError>("{}: \"{}\" matches nothing but {}: {} {}", key_, pattern, choice.only,
                      nearest_parameter(pattern, model), choice.reason);
  fail<ConfigError>("{}: \"{}\" matches no parameter; the nearest is {}", key_, pattern,
                    nearest_parameter(pattern, model));
}

}  // namespace nought
