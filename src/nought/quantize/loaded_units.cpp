#include "nought/quantize/loaded_units.h"

namespace nought {

LoadedUnits::LoadedUnits(const Context& context, Model& model, const StateSource& weights)
    : context_(context), model_(model), weights_(weights) {
  for (size_t i = 0; i < model_.units().size(); ++i) model_.units()[i]->attach(this, i);
}

LoadedUnits::~LoadedUnits() {
  for (const auto& unit : model_.units()) unit->attach(nullptr, 0);
}

void LoadedUnits::load(const Unit& unit) {
  if (loaded_.contains(&unit)) return;
  std::vector<Tensor>& segments = loaded_[&unit];
  for (const Segment& segment : unit.segments())
    segments.push_back(context_.zeros({segment.size}, segment.dtype.value_or(DType::f32), Category::parameters));
  for (const Parameter& parameter : unit.parameters())
    weights_.fill(StateKind::master, parameter, Interval{0, parameter.placement.global.numel()},
                  segments[parameter.segment].flat(parameter.range.begin, parameter.range.end));
}

void LoadedUnits::drop(const Unit& unit) {
  if (!held_.contains(&unit)) loaded_.erase(&unit);
}

void LoadedUnits::hold(const Unit& unit) {
  load(unit);
  held_.insert(&unit);
}

void LoadedUnits::let_go(const Unit& unit) {
  held_.erase(&unit);
  drop(unit);
}

Tensor LoadedUnits::values_of(const Unit& unit, const Parameter& parameter) {
  return values(unit, parameter.segment).flat(parameter.range.begin, parameter.range.end);
}

void LoadedUnits::before_forward(Unit& unit) {
  load(unit);
  for (const Unit* other : unit.borrowed()) load(*other);
}

void LoadedUnits::after_forward(Unit& unit) {
  drop(unit);
  for (const Unit* other : unit.borrowed()) drop(*other);
}

void LoadedUnits::before_backward(Unit& unit) { fail<Error>("{}: nothing is trained here", unit.name()); }
void LoadedUnits::after_backward(Unit& unit) { before_backward(unit); }
GradSink LoadedUnits::gradient(const Unit& /*unit*/, size_t /*first*/, size_t /*last*/) { return {}; }

Tensor LoadedUnits::values(const Unit& unit, size_t segment) {
  const auto found = loaded_.find(&unit);
  require(found != loaded_.end(), "{} is not loaded", unit.name());
  return found->second[segment];
}

}  // namespace nought
