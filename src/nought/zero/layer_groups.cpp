#include "nought/zero/layer_groups.h"

#include <optional>
#include <utility>

#include <fmt/core.h>

#include "nought/base/name_pattern.h"
#include "nought/base/text.h"
#include "nought/zero/weight_change.h"

namespace nought {

namespace {

bool has_a_layer(ParameterRole role) { return can_be_quantized(role) || role == ParameterRole::router; }

/// Which group each layer of a model is in.
class LayerChoice {
 public:
  LayerChoice(const std::string& section, const std::vector<NamedPatterns>& groups, const Model& model)
      : section_(section), groups_(groups) {
    for (size_t unit = 0; unit < model.units().size(); ++unit) {
      const std::vector<Parameter>& parameters = model.units()[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i)
        if (has_a_layer(parameters[i].role) && parameters[i].placement.global.rank() >= 2)
          layers_.push_back({.unit = unit, .index = i, .parameter = &parameters[i]});
    }
    for (size_t group = 0; group < groups_.size(); ++group) choose(group);
  }

  std::vector<ChosenLayer> chosen() const {
    std::vector<ChosenLayer> layers;
    for (const Layer& layer : layers_) {
      if (!layer.group) continue;
      const Parameter& parameter = *layer.parameter;
      const std::string name = layer_of(parameter), place = place_of(*layer.group);
      require<ConfigError>(!parameter.quantized, "{}: {} is kept in codes of few bits already: leave it out of modules",
                           place, name);
      require<ConfigError>(!parameter.placement.tile,
                           "{}: {} is cut into tiles: leave training.memory_centric_tiling out", place, name);
      layers.push_back({layer.unit, layer.index, *layer.group});
    }
    return layers;
  }

 private:
  struct Layer {
    size_t unit, index;
    const Parameter* parameter;
    std::optional<size_t> group = {};
  };

  std::string place_of(size_t group) const { return fmt::format("{}.{}", section_, groups_[group].name); }

  void choose(size_t group) {
    for (const std::string& text : groups_[group].modules) {
      const NamePattern pattern = compiled(text, group);
      bool found = false;
      for (Layer& layer : layers_) {
        const std::string name = layer_of(*layer.parameter);
        if (!pattern.found_in(name)) continue;
        found = true;
        require<ConfigError>(!layer.group || *layer.group == group,
                             "{}: \"{}\" matches {}, which is in {} already: a layer is in one group", place_of(group),
                             text, name, layer.group ? groups_[*layer.group].name : "");
        layer.group = group;
      }
      if (!found) refuse(text, group);
    }
  }

  NamePattern compiled(const std::string& text, size_t group) const {
    try {
      return NamePattern(text);
    } catch (const ConfigError& error) {
      fail<ConfigError>("{}.modules: {}", place_of(group), error.what());
    }
  }

  [[noreturn]] void refuse(const std::string& text, size_t group) const {
    std::string nearest;
    std::pair<size_t, size_t> least{SIZE_MAX, SIZE_MAX};
    for (const Layer& layer : layers_) {
      const std::string name = layer_of(*layer.parameter);
      const std::pair distance{edit_distance_within(text, name), edit_distance(text, name)};
      if (distance < least) least = distance, nearest = name;
    }
    fail<ConfigError>("{}.modules: \"{}\" matches no matrix or table; the nearest is {}", place_of(group), text,
                      nearest);
  }

  const std::string& section_;
  const std::vector<NamedPatterns>& groups_;
  std::vector<Layer> layers_;
};

}  // namespace

std::vector<ChosenLayer> layers_of_groups(const std::string& section, const std::vector<NamedPatterns>& groups,
                                          const Model& model) {
  return LayerChoice(section, groups, model).chosen();
}

std::vector<std::string> describe_layers(const std::vector<ChosenLayer>& layers, size_t groups, const Model& model) {
  std::vector<std::vector<std::string>> names(groups);
  for (const ChosenLayer& layer : layers)
    names[layer.group].push_back(layer_of(model.units()[layer.unit]->parameters()[layer.parameter]));
  std::vector<std::string> lines;
  for (const std::vector<std::string>& group : names)
    lines.push_back(group.size() == 1 ? group.front()
                                      : fmt::format("{} layers, {} to {}", group.size(), group.front(), group.back()));
  return lines;
}

}  // namespace nought
