#include "nought/weights/kept_codes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "nought/io/weight_formats.h"

namespace nought {

namespace {

using Codes = std::optional<WeightCodes>;

/// The parameter in blocks as the file has it, if this rank holds whole ones.
Codes blocks_of(const StoredWeights& stored, const Parameter& parameter) {
  const std::optional<StoredBlocks> blocks = stored.blocks(parameter);
  if (!blocks || parameter.shape[-1] % blocks->format->block != 0) return std::nullopt;
  return WeightCodes{.kind = CodeKind::blocks, .format = blocks->format};
}

/// How the file has the parameter, if kernels read it so.
Codes codes_of(const StoredWeights& stored, const Parameter& parameter, bool reads_blocks) {
  if (!can_be_quantized(parameter.role) || parameter.dtype || parameter.shape.rank() < 2) return std::nullopt;
  if (parameter.shape[-1] % kQ8Block == 0 && stored.storage_of(parameter).format == "q8_0") return WeightCodes{};
  if (reads_blocks)
    if (const Codes blocks = blocks_of(stored, parameter)) return blocks;
  if (parameter.shape != parameter.placement.global) return std::nullopt;  // ranks may cut blocks
  const std::optional<StoredFourBits> four = stored.four_bits(parameter);
  if (!four) return std::nullopt;
  return WeightCodes{.kind = four->kind, .double_quantized = !four->nested.empty()};
}

/// Parameters that are multiplied at once are kept alike: as one kind of codes, or in blocks of formats of their own.
void make_alike(const StoredWeights& stored, std::span<const Parameter> parameters, std::span<Codes> codes,
                bool reads_blocks) {
  if (std::ranges::all_of(codes, [&](const Codes& each) { return each && *each == *codes[0]; })) return;
  for (size_t i = 0; i < codes.size(); ++i)
    if (codes[i] && codes[i]->kind != CodeKind::blocks)
      codes[i] = reads_blocks ? blocks_of(stored, parameters[i]) : std::nullopt;
  const bool all = std::ranges::all_of(codes, [](const Codes& each) { return each.has_value(); });
  if (!all) std::ranges::fill(codes, std::nullopt);
}

std::string name_of_format(const WeightCodes& codes) {
  return std::string(codes.kind == CodeKind::blocks ? codes.format->name : name_of(codes.kind));
}

}  // namespace

std::vector<KeptFormat> keep_stored_codes(const ModelSource& source, Model& model, bool reads_blocks) {
  const StoredWeights* stored = source.stored();
  const ModelAdapter& adapter = source.config().adapter;
  if (stored == nullptr || !adapter.has_products_alone()) return {};
  std::map<std::string, int64_t> counts;
  for (const auto& unit : model.units()) {
    const std::span<const Parameter> parameters = unit->parameters();
    std::vector<Codes> codes(parameters.size());
    for (size_t i = 0; i < codes.size(); ++i)
      if (!adapter.saves(parameters[i].name)) codes[i] = codes_of(*stored, parameters[i], reads_blocks);
    for (size_t begin = 0, end = 0; begin < codes.size(); begin = end) {
      for (end = begin + 1; end < codes.size() && parameters[end].joined;) ++end;
      make_alike(*stored, parameters.subspan(begin, end - begin), std::span(codes).subspan(begin, end - begin),
                 reads_blocks);
    }
    for (const Codes& each : codes)
      if (each) ++counts[name_of_format(*each)];
    unit->choose_codes(
        [&](const Parameter& parameter) { return codes[static_cast<size_t>(&parameter - parameters.data())]; });
  }
  std::vector<KeptFormat> kept;
  for (const auto& [name, tensors] : counts) kept.push_back({name, tensors});
  return kept;
}

std::string describe(const std::vector<KeptFormat>& kept) {
  std::string text;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) text += i + 1 == kept.size() ? " and " : ", ";
    text += fmt::format("{} ({}{})", kept[i].name, kept[i].tensors,
                        i > 0                  ? ""
                        : kept[i].tensors == 1 ? " tensor"
                                               : " tensors");
  }
  return text;
}

}  // namespace nought
