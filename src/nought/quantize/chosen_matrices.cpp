#include "nought/quantize/chosen_matrices.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/name_pattern.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr std::string_view kWeight = ".weight";

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

/// What a module is called within its layer: "mlp.experts.7.up_proj", behind the first number in its name.
std::vector<std::string> parts_in_layer(const std::string& weight) {
  std::vector<std::string> parts = split(module_of(weight), '.');
  const auto layer = std::find_if(parts.begin(), parts.end(), is_number);
  if (layer != parts.end()) parts.erase(parts.begin(), layer + 1);
  return parts;
}

std::vector<NamePattern> patterns_of(const std::vector<std::string>& skip) {
  std::vector<NamePattern> patterns;
  for (const std::string& pattern : skip) try {
      patterns.emplace_back(pattern);
    } catch (const ConfigError& error) {
      fail<ConfigError>("--skip {}: {}", pattern, error.what());
    }
  return patterns;
}

}  // namespace

std::string module_of(const std::string& weight) {
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight;
}

std::string kind_of(const std::string& weight) {
  std::vector<std::string> parts = parts_in_layer(weight);
  std::replace_if(parts.begin(), parts.end(), is_number, "N");
  return fmt::format("{}", fmt::join(parts, "."));
}

ChosenMatrices::ChosenMatrices(const ModelSource& source, const std::vector<std::string>& skip, const MatrixRule& rule,
                               const FolderFormat& format, std::string_view format_name) {
  const std::vector<NamePattern> skipped = patterns_of(skip);
  std::vector<bool> used(skip.size());
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.role == ParameterRole::router && parameter.name.ends_with(kWeight))
        routers_.push_back(module_of(parameter.name));
      if (!format.wants(parameter)) continue;
      bool skips = false;
      for (size_t i = 0; i < skipped.size(); ++i)
        if (skipped[i].found_in(parameter.name)) skips = used[i] = true;
      const bool fits = format.takes(parameter.placement.global, rule);
      (skips || !fits ? dense_ : codes_).insert(parameter.name);
      if (!skips && !fits) unfit_.push_back(parameter.name);
    }
  for (size_t i = 0; i < used.size(); ++i)
    require<ConfigError>(used[i], "--skip {}: no matrix of a linear layer has such a name", skip[i]);
  require<ConfigError>(!codes_.empty(), "no matrix of {} becomes codes: of {} none fits --format {} with {} bits",
                       source.folder().string(), unfit_.size(), format_name, rule.grid.bits);
}

void ChosenMatrices::require_no_stacks(const ModelSource& source) const {
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters())
      require<ConfigError>(!becomes_codes(parameter) || parameter.placement.global.rank() == 2,
                           "{} is a stack of experts, which is rounded to the nearest: --method rtn", parameter.name);
}

FolderModules ChosenMatrices::modules() const {
  FolderModules modules{.dense = {}, .codes = {}, .routers = routers_};
  std::set<std::string> in_layers;
  for (const std::string& name : dense_) modules.dense.push_back(module_of(name));
  for (const std::string& name : codes_) in_layers.insert(fmt::format("{}", fmt::join(parts_in_layer(name), ".")));
  modules.codes.assign(in_layers.begin(), in_layers.end());
  return modules;
}

}  // namespace nought
