#include "nought/nn/norm.h"

namespace nought {

Norm::Norm(Unit& unit, const std::string& name, const Options& options) : options_(options) {
  const bool layer = options.kind == NormKind::layer;
  require<ShapeError>(!layer || options.weight_offset == 0, "{}: a layer norm has no weight offset", name);
  require<ShapeError>(options.weight_offset == 0 || options.weight_offset == 1,
                      "{}: a norm's weight_offset is 0 or 1, got {}", name, options.weight_offset);
  const auto add = [&](const char* suffix, Init init, ParameterRole role) {
    return options.slicing.add_partial(unit, name + suffix, {options.features}, init, role);
  };
  weight_ = add(".weight", options.weight_offset == 1 ? Init::zeros() : Init::ones(), ParameterRole::norm);
  if (layer && options.bias) bias_ = add(".bias", Init::zeros(), ParameterRole::bias);
}

Var Norm::operator()(Tape& tape, const Var& x) const {
  if (!weight_.defined()) return x;
  return options_.kind == NormKind::rms ? rms_norm(tape, x, weight_, options_.eps, options_.weight_offset)
                                        : layer_norm(tape, x, weight_, bias_, options_.eps);
}

}  // namespace nought
