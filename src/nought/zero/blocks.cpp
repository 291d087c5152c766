#include "nought/zero/blocks.h"

#include <algorithm>
#include <vector>

#include "nought/io/weight_formats.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// Bytes that are read at a time, or one block.
constexpr int64_t kBytesAtOnce = int64_t{1} << 22;

/// Reads blocks [begin, end) of what this rank holds of a parameter.
std::vector<std::byte> read_blocks(const StoredBlocks& stored, const Parameter& parameter, const Mesh& mesh,
                                   Interval blocks) {
  const WeightFormat& format = *stored.format;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks.size() * format.block_bytes));
  std::byte* to = bytes.data();
  for (const Interval& each :
       global_elements(parameter, mesh, {blocks.begin * format.block, blocks.end * format.block})) {
    require<ConfigError>(each.begin % format.block == 0 && each.size() % format.block == 0,
                         "parameter {} {} cannot be kept as {}: ranks share its rows, and not in whole blocks of {}: "
                         "use fewer ranks of --tp",
                         parameter.name, parameter.placement.global, format.name, format.block);
    stored.read(each, to);
    to += bytes_of_blocks(format, each.size());
  }
  return bytes;
}

}  // namespace

void load_blocks(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit, size_t segment,
                 const KeptSegment& kept) {
  for (const ParameterPiece& piece : pieces_in(unit, segment, kept.kept)) {
    const Parameter& parameter = unit.parameters()[piece.parameter];
    const std::optional<StoredBlocks> stored = source.blocks(parameter);
    require<ConfigError>(stored && stored->format == parameter.codes.format,
                         "{} is to be kept as {}, and is stored as {}", parameter.name, parameter.codes.format->name,
                         stored ? stored->format->name : "other values");
    // A shard may begin and end within a block.
    const int64_t block = stored->format->block_bytes, at_once = std::max<int64_t>(1, kBytesAtOnce / block) * block;
    const Interval whole = piece.in_parameter;
    for (int64_t begin = whole.begin; begin < whole.end;) {
      const int64_t first = begin / block * block, end = std::min(whole.end, first + at_once);
      const auto bytes = read_blocks(*stored, parameter, mesh, {first / block, ceil_div(end, block)});
      const int64_t at = piece.in_segment.begin + begin - whole.begin - kept.kept.begin;
      context.upload(
          std::span(reinterpret_cast<const uint8_t*>(bytes.data()) + (begin - first), static_cast<size_t>(end - begin)),
          kept.stored.flat(at, at + end - begin));
      begin = end;
    }
  }
}

}  // namespace nought
