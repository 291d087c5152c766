#include "nought/weights/grown_weights.h"

#include <algorithm>

namespace nought {

namespace {

constexpr int64_t kMeanBlock = int64_t{1} << 22;  // elements that are read at once

}  // namespace

GrownWeights::GrownWeights(const StateSource& source, const Model& before, const StateSource& fresh)
    : source_(source), fresh_(fresh) {
  for (const auto& unit : before.units())
    for (const Parameter& parameter : unit->parameters()) before_[parameter.name] = &parameter;
}

void GrownWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                        const Tensor& destination) const {
  const auto found = before_.find(parameter.name);
  const Shape& now = parameter.placement.global;
  if (found == before_.end()) return fresh_.fill(kind, parameter, elements, destination);
  if (found->second->placement.global == now) return source_.fill(kind, parameter, elements, destination);
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  const Parameter& before = *found->second;
  const int64_t numel = before.placement.global.numel();
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    const int64_t old = std::clamp<int64_t>(numel - interval.begin, 0, interval.size());
    if (old > 0) source_.fill(kind, before, Interval{interval.begin, interval.begin + old}, values.flat(0, old));
    if (old == interval.size()) return;
    const std::vector<double>& mean = mean_row(before);
    visit_float(values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = values.data<T>();
      for (int64_t i = old; i < interval.size(); ++i)
        out[i] = T(static_cast<float>(mean[static_cast<size_t>(interval.begin + i) % mean.size()]));
    });
  });
}

const std::vector<double>& GrownWeights::mean_row(const Parameter& parameter) const {
  const auto [entry, fresh] = means_.try_emplace(parameter.name);
  std::vector<double>& mean = entry->second;
  if (!fresh) return mean;
  const Shape& shape = parameter.placement.global;
  const int64_t rows = shape[0], width = shape.numel() / rows;
  mean.assign(static_cast<size_t>(width), 0);
  const auto memory = Memory::create();
  const int64_t block = std::max<int64_t>(1, kMeanBlock / width);
  for (int64_t first = 0; first < rows; first += block) {
    const Interval elements{first * width, std::min(rows, first + block) * width};
    const Tensor values = Tensor::empty(*memory, {elements.size()}, DType::f32, Category::workspace);
    source_.fill(StateKind::master, parameter, elements, values);
    for (int64_t i = 0; i < elements.size(); ++i)
      mean[static_cast<size_t>(i % width)] += static_cast<double>(values.data<float>()[i]);
  }
  for (double& value : mean) value /= static_cast<double>(rows);
  return mean;
}

}  // namespace nought
