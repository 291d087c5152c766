#include "nought/autograd/unit.h"

namespace nought {

ParameterView::ParameterView(Unit& unit, size_t first, size_t last, Shape shape)
    : unit_(&unit), first_(first), last_(last), shape_(shape) {
  require<ShapeError>(range().size() == shape.numel(), "parameter {} of {} elements cannot have shape {}",
                      unit.parameters()[first].name, range().size(), shape);
}

Interval ParameterView::range() const {
  const auto& parameters = unit_->parameters();
  return {parameters[first_].range.begin, parameters[last_].range.end};
}

Tensor ParameterView::value() const {
  return unit_->store().values(*unit_).flat(range().begin, range().end).reshape(shape_);
}

GradSink ParameterView::gradient() const {
  GradSink sink = unit_->store().gradient(*unit_, first_, last_);
  if (sink) sink.into = sink.into.reshape(shape_);
  return sink;
}

ParameterView Unit::add(std::string name, Shape shape, Init init, bool decay) {
  require(store_ == nullptr, "unit {} is in use; parameter {} must be declared before", name_, name);
  const int64_t begin = numel();
  parameters_.push_back({std::move(name), shape, {begin, begin + shape.numel()}, init, decay});
  return ParameterView(*this, parameters_.size() - 1, parameters_.size() - 1, shape);
}

ParameterView Unit::join(const ParameterView& first, const ParameterView& last, Shape shape) {
  return ParameterView(*this, first.first(), last.last(), shape);
}

UnitStore& Unit::store() const {
  require(store_ != nullptr, "unit {} has no storage yet: make a ShardedModel of its model first", name_);
  return *store_;
}

}  // namespace nought
