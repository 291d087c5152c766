#include "nought/weights/kept_codes.h"

#include <algorithm>

namespace nought {

bool keep_stored_codes(const ModelSource& source, Model& model) {
  const StoredWeights* stored = source.stored();
  if (stored == nullptr || !source.adapters().empty()) return false;
  bool any = false;
  const auto is_kept = [&](const Parameter& parameter) {
    return can_be_quantized(parameter.role) && !parameter.dtype && parameter.shape.rank() > 1 &&
           parameter.shape[-1] % kQ8Block == 0 && stored->storage_of(parameter).format == "q8_0";
  };
  for (const auto& unit : model.units()) {
    try {
      unit->choose_quantized(is_kept);
      any = any || std::ranges::any_of(unit->parameters(), [](const Parameter& each) { return each.quantized; });
    } catch (const ConfigError&) {  // some parameters of one product are in other formats
      unit->choose_quantized([](const Parameter&) { return false; });
    }
  }
  return any;
}

}  // namespace nought
