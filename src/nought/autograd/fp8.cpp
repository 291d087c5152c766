#include "nought/autograd/fp8.h"

#include <algorithm>
#include <cmath>

#include "nought/kernels/rounding.h"

namespace nought {

Tensor Fp8Rounding::operator()(const Context& context, const Tensor& x) const {
  if (scale == 0 && !largest && !ranges) return x;
  const Tensor y = context.empty(x.shape(), x.dtype(), Category::workspace);
  if (ranges) return context.run(RoundRows{.x = x, .ranges = ranges, .y = y, .grid = grid, .bits = bits}), y;
  context.run(RoundFp8{.x = x, .y = y, .largest = largest, .format = format, .scale = scale, .margin = margin});
  return y;
}

Fp8Recipe::Fp8Recipe(const Fp8Options& options) : options_(options) {
  if (!options_.inputs) return;
  for (size_t group = 0; group < options_.inputs->groups.size(); ++group)
    for (const std::string& text : options_.inputs->groups[group].modules) try {
        patterns_.push_back({group, NamePattern(text)});
      } catch (const ConfigError& error) {
        fail<ConfigError>("{}.{}.modules: {}", options_.inputs->section, options_.inputs->groups[group].name,
                          error.what());
      }
}

std::optional<size_t> Fp8Recipe::group_of(const std::string& name) {
  std::optional<size_t> group;
  for (Pattern& pattern : patterns_) {
    if (!pattern.text.found_in(name)) continue;
    const std::vector<InputGroup>& groups = options_.inputs->groups;
    require<ConfigError>(!group || *group == pattern.group,
                         "{}.{}: \"{}\" matches {}, which is in {} already: a layer is in one group",
                         options_.inputs->section, groups[pattern.group].name, pattern.text.text(), name,
                         groups[group.value_or(0)].name);
    group = pattern.group, pattern.found = true;
  }
  return group;
}

size_t Fp8Recipe::add_layer(std::span<const std::string> names) {
  histories_.resize(histories_.size() + kRoles);
  Layer layer{.names = {names.begin(), names.end()}, .group = {}};
  for (size_t i = 0; i < names.size() && options_.inputs; ++i) {
    const std::optional<size_t> group = group_of(names[i]);
    require<ConfigError>(
        i == 0 || group == layer.group,
        "{}: {} and {} have the same inputs, and one of them alone is in a group: name both in modules",
        options_.inputs->section, names[0], names[i]);
    layer.group = group;
  }
  layers_.push_back(std::move(layer));
  return layers_.size() - 1;
}

std::vector<std::vector<std::string>> Fp8Recipe::layers_by_group() const {
  std::vector<std::vector<std::string>> groups(options_.inputs ? options_.inputs->groups.size() : 0);
  for (const Layer& layer : layers_)
    if (layer.group) groups[*layer.group].insert(groups[*layer.group].end(), layer.names.begin(), layer.names.end());
  for (const Pattern& pattern : patterns_)
    require<ConfigError>(pattern.found, "{}.{}.modules: \"{}\" matches no linear layer of a block",
                         options_.inputs->section, options_.inputs->groups[pattern.group].name, pattern.text.text());
  return groups;
}

const Tensor& Fp8Recipe::noted(const Context& context) {
  if (!noted_) noted_ = context.zeros({static_cast<int64_t>(histories_.size())}, DType::f32, Category::workspace);
  return noted_;
}

Fp8Rounding Fp8Recipe::rounding(const Context& context, const Tensor& x, size_t layer, Role role, bool note,
                                Communicator* ranks) {
  const size_t slot = layer * kRoles + static_cast<size_t>(role);
  const Fp8 format = role == Role::gradient ? Fp8::e5m2 : Fp8::e4m3;
  const std::vector<double>& history = histories_[slot];
  const bool delayed = options_.scaling == Fp8Scaling::delayed;
  const auto at = static_cast<int64_t>(slot);
  const auto add_to_noted = [&](const Tensor& values) {
    if (note && delayed) context.run(AbsMax{.x = values, .out = noted(context).flat(at, at + 1), .accumulate = true});
  };
  if (delayed && !history.empty()) {
    add_to_noted(x);
    return {format, fp8_scale(*std::max_element(history.begin(), history.end()), format, options_.margin)};
  }
  // A first step has no history: it scales by what it sees.
  const Tensor largest = context.empty({1}, DType::f32);
  context.run(AbsMax{.x = x, .out = largest});
  if (ranks) ranks->wait(ranks->all_reduce(largest, ReduceOp::max), *context.stream);
  add_to_noted(largest);
  return {.format = format, .largest = largest, .margin = options_.margin};
}

Fp8Rounding Fp8Recipe::row_rounding(const Context& context, const Tensor& x, size_t layer, Communicator* ranks) const {
  const std::optional<size_t> group = layers_[layer].group;
  if (!group || updates_ < 0) return {};
  if (updates_ < options_.inputs->start && !context.memory->is_virtual()) return {};  // a dry run: what will be needed
  const Tensor ranges = context.empty({x.rows(), 2}, DType::f32);
  context.run(RowRanges{.x = x, .ranges = ranges});
  if (ranks) ranks->wait(ranks->all_reduce(ranges, ReduceOp::max), *context.stream);
  return {.ranges = ranges, .grid = options_.inputs->grid, .bits = options_.inputs->groups[*group].bits};
}

Tensor Fp8Recipe::take_maxima(const Context& context, Communicator& ranks) {
  if (options_.scaling != Fp8Scaling::delayed) return {};
  const Tensor& largest = noted(context);
  if (ranks.size() > 1) ranks.wait(ranks.all_reduce(largest, ReduceOp::max), *context.stream);
  const Tensor taken = context.empty(largest.shape(), DType::f64, Category::workspace);
  context.run(Cast{.x = largest, .y = taken});
  context.zero(largest);
  return taken;
}

void Fp8Recipe::finish_step(std::span<const double> maxima) {
  for (size_t slot = 0; slot < maxima.size(); ++slot) {
    std::vector<double>& history = histories_[slot];
    if (!std::isfinite(maxima[slot])) continue;
    if (static_cast<int64_t>(history.size()) == options_.history) history.erase(history.begin());
    history.push_back(maxima[slot]);
  }
}

std::vector<double> Fp8Recipe::state() const {
  if (options_.scaling == Fp8Scaling::none) return {};
  std::vector<double> state{static_cast<double>(histories_.size())};
  for (const std::vector<double>& history : histories_) {
    state.push_back(static_cast<double>(history.size()));
    state.insert(state.end(), history.begin(), history.end());
  }
  return state;
}

bool Fp8Recipe::restore(std::span<const double> state) {
  if (options_.scaling == Fp8Scaling::none) return state.empty();
  if (state.empty() || state[0] != static_cast<double>(histories_.size())) return false;
  std::vector<std::vector<double>> histories;
  size_t at = 1;
  while (histories.size() < histories_.size()) {
    if (at >= state.size() || !(state[at] >= 0 && state[at] <= static_cast<double>(state.size() - at - 1)))
      return false;
    const auto count = static_cast<size_t>(state[at++]);
    const size_t kept = std::min(count, static_cast<size_t>(options_.history));
    histories.emplace_back(state.begin() + static_cast<std::ptrdiff_t>(at + count - kept),
                           state.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
  }
  histories_ = std::move(histories);
  return true;
}

}  // namespace nought
