#include "nought/nn/freezing.h"

#include <algorithm>

#include "nought/nn/patterns.h"

namespace nought {

namespace {

bool fits_blocks(const Parameter& parameter, CodeKind kind) {
  const Shape& shape = parameter.shape;
  if (parameter.dtype || shape.rank() < 2) return false;
  if (is_four_bits(kind))
    return parameter.role == ParameterRole::matrix && parameter.placement.global.numel() % kFourBitBlock == 0;
  return can_be_quantized(parameter.role) && shape[-1] > 0 && shape[-1] % kCodeBlock == 0;
}

void quantize_frozen(Model& model, WeightCodes codes) {
  for (const auto& unit : model.units())
    unit->choose_quantized(
        [&](const Parameter& parameter) {
          return parameter.quantized || (!parameter.trainable && fits_blocks(parameter, codes.kind));
        },
        codes);
}

}  // namespace

Model& apply(const Freezing& freezing, Model& model) {
  if (freezing.empty()) {
    if (freezing.codes) quantize_frozen(model, *freezing.codes);  // what an adapter leaves frozen
    return model;
  }
  require<ConfigError>(!freezing.freeze.empty(),
                       "training.trainable has no effect without training.freeze, as everything is trained; to train "
                       "only what it names, write \"freeze\": [\".\"]");
  const ParameterPatterns::Choice choice{can_be_trained, "what is never trained", "has no gradient"};
  const ParameterPatterns frozen("training.freeze", freezing.freeze, model, choice);
  const ParameterPatterns trained("training.trainable", freezing.trainable, model, choice);
  for (const auto& unit : model.units())
    unit->choose_trained(
        [&](const Parameter& parameter) { return trained.match(parameter) || !frozen.match(parameter); });
  if (freezing.codes) quantize_frozen(model, *freezing.codes);
  const bool any = std::any_of(model.units().begin(), model.units().end(), [](const auto& u) { return u->trained(); });
  require<ConfigError>(any,
                       "training.freeze leaves no parameter to train: add what is to be trained to "
                       "training.trainable");
  return model;
}

std::string describe_four_bits(const Model& model) {
  int64_t matrices = 0, kept = 0, all = 0, left = 0;
  std::string kind, first_left;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.placement.global.numel();
      all += numel;
      if (parameter.quantized && is_four_bits(parameter.codes.kind)) {
        ++matrices, kept += numel, kind = name_of(parameter.codes.kind);
      } else if (parameter.role == ParameterRole::matrix && !parameter.trainable && numel % kFourBitBlock != 0) {
        if (left++ == 0) first_left = parameter.name;
      }
    }
  if (matrices == 0) return "";
  const std::string rest = left == 0 ? ""
                                     : fmt::format("; {} of no whole blocks of {} elements are not, {} for one", left,
                                                   kFourBitBlock, first_left);
  return fmt::format("{} matrices, {:.0f}% of the parameters, are kept in {}{}", matrices,
                     100 * static_cast<double>(kept) / static_cast<double>(all), kind, rest);
}

}  // namespace nought
