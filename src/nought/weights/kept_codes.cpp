#include "nought/weights/kept_codes.h"

#include <algorithm>
#include <optional>

namespace nought {

namespace {

/// How the file has the parameter, if kernels read it so.
std::optional<WeightCodes> codes_of(const StoredWeights& stored, const Parameter& parameter) {
  if (!can_be_quantized(parameter.role) || parameter.dtype || parameter.shape.rank() < 2) return std::nullopt;
  if (parameter.shape[-1] % kQ8Block == 0 && stored.storage_of(parameter).format == "q8_0") return WeightCodes{};
  if (parameter.shape != parameter.placement.global) return std::nullopt;  // ranks may cut blocks
  const std::optional<StoredFourBits> four = stored.four_bits(parameter);
  if (!four) return std::nullopt;
  return WeightCodes{four->kind, !four->nested.empty()};
}

}  // namespace

bool keep_stored_codes(const ModelSource& source, Model& model) {
  const StoredWeights* stored = source.stored();
  const ModelAdapter& adapter = source.config().adapter;
  if (stored == nullptr || !adapter.has_products_alone()) return false;
  bool any = false;
  for (const auto& unit : model.units()) {
    std::optional<WeightCodes> codes;  // a Unit keeps one kind
    const auto is_kept = [&](const Parameter& parameter) {
      const auto of = adapter.saves(parameter.name) ? std::nullopt : codes_of(*stored, parameter);
      if (of && !codes) codes = of;
      return of && *of == *codes;
    };
    for (const Parameter& parameter : unit->parameters())
      if (is_kept(parameter)) break;
    if (!codes) continue;
    try {
      unit->choose_quantized(is_kept, *codes);
      any = any || std::ranges::any_of(unit->parameters(), [](const Parameter& each) { return each.quantized; });
    } catch (const ConfigError&) {  // some parameters of one product are in other formats
      unit->choose_quantized([](const Parameter&) { return false; });
    }
  }
  return any;
}

}  // namespace nought
