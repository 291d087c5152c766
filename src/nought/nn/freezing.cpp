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

}  // namespace nought
