// What weights and checkpoints give to a run, as values that can be compared.
#pragma once

#include <string>

#include "support/whole_tensors.h"

#include "nought/checkpoint/checkpoint.h"

namespace nought::test {

/// The values of a state of every parameter, whole, by name.
inline WholeTensors values_of(const StateSource& source, const Model& model, StateKind kind = StateKind::master) {
  const Context context = Context::reference();
  WholeTensors all;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.placement.global.numel();
      const Tensor values = context.empty({numel}, DType::f32);
      source.fill(kind, parameter, Interval{0, numel}, values);
      all[parameter.name] = context.to_host<float>(values);
    }
  return all;
}

/// Every state of a checkpoint, by "exp_avg/NAME". Every block is read, so every checksum is verified.
inline WholeTensors states_in(const std::filesystem::path& path, const Model& model) {
  const Checkpoint checkpoint(path, model);
  WholeTensors states;
  for (const StateKind kind : {StateKind::master, StateKind::exp_avg, StateKind::exp_avg_sq})
    for (auto& [name, values] : values_of(checkpoint, model, kind))
      states[fmt::format("{}/{}", name_of(kind), name)] = std::move(values);
  return states;
}

}  // namespace nought::test
