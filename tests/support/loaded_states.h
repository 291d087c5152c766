// All that a checkpoint gives to a run that resumes, as values that can be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nought/train/checkpoint.h"

namespace nought::test {

/// The values of every state of every parameter, by "exp_avg/NAME". Every block is read, so every checksum is verified.
inline std::map<std::string, std::vector<float>> states_in(const std::filesystem::path& path, const Model& model) {
  const Context context = Context::reference();
  const Checkpoint checkpoint(path, model);
  std::map<std::string, std::vector<float>> states;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      for (const StateKind kind : {StateKind::master, StateKind::exp_avg, StateKind::exp_avg_sq}) {
        const int64_t numel = parameter.placement.global.numel();
        const Tensor values = context.empty({numel}, DType::f32);
        checkpoint.fill(kind, parameter, {0, numel}, values);
        states[fmt::format("{}/{}", name_of(kind), parameter.name)] = context.to_host<float>(values);
      }
  return states;
}

}  // namespace nought::test
