#include "nought/checkpoint/owned_pieces.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "nought/zero/codes.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

constexpr int64_t kBlockElements = int64_t{1} << 20;  // 4 MiB of fp32

using Stays = OwnedPiece::Stays;
using Source = KeptStates::Source;

OwnedPiece piece_of(const ShardedOptimizer& optimizer, const KeptStates::OwnedState& state, const std::string& prefix) {
  Source source = optimizer.kept().source(state);
  return {.parameter = state.parameter,
          .state = prefix + std::string(name_of(state.kind)),
          .in_parameter = state.in_parameter,
          .dtype = DType::f32,
          .stays = source.passing ? Stays::until_passes : Stays::until_update,
          .copied = source.place == Source::Place::device,
          .on_host = source.place == Source::Place::host || source.place == Source::Place::file,
          .held = source.held && source.held.on_host() ? source.held : Tensor(),
          .whole = source.whole,
          .read = std::move(source.read)};
}

OwnedPiece piece_of(const LocalSteps::Owned& owned) {
  const Tensor& values = owned.values;
  return {.parameter = owned.parameter,
          .state = std::string(name_of(owned.kind)),
          .in_parameter = owned.in_parameter,
          .dtype = DType::f32,
          .stays = Stays::until_passes,
          .held = values.on_host() ? values : Tensor(),
          .read = [values](const Context& by, Interval elements, const Tensor& into) {
            by.copy(values.flat(elements.begin, elements.end), into);
          }};
}

/// A stretch of a segment that is not trained.
class FrozenStretch {
 public:
  FrozenStretch(const ShardedModel& model, SegmentIndex at) : model_(model), at_(at) {}

  OwnedPiece piece(const ParameterPiece& stretch) const {
    const Unit& unit = *model_.model().units()[at_.unit];
    const Segment& segment = unit.segments()[at_.segment];
    OwnedPiece piece{.parameter = &unit.parameters()[stretch.parameter],
                     .state = std::string(name_of(StateKind::master)),
                     .in_parameter = stretch.in_parameter,
                     .dtype = model_.residency().dtype(at_),
                     .stays = model_.residency().elsewhere(at_) ? Stays::until_passes : Stays::always};
    if (segment.content == SegmentContent::codes) {
      require(segment.codes.kind == CodeKind::q8_0, "{} codes are in no checkpoint: they are a frozen model's",
              name_of(segment.codes.kind));
      piece.dtype = DType::f32, piece.whole = true, piece.stays = Stays::until_passes;
      piece.read = [this_ = *this, stretch](const Context& by, Interval, const Tensor& into) {
        by.copy(this_.decoded_values(stretch), into);
      };
    } else if (piece.stays == Stays::always) {
      const Tensor values = model_.residency().read(at_, stretch.in_segment);
      if (values.on_host()) piece.held = values;
      piece.read = [values](const Context& by, Interval elements, const Tensor& into) {
        by.copy(values.flat(elements.begin, elements.end), into);
      };
    } else {
      piece.read = [&model = model_, at = at_, origin = stretch.in_segment.begin](const Context& by, Interval elements,
                                                                                  const Tensor& into) {
        by.copy(model.residency().read(at, {origin + elements.begin, origin + elements.end}), into);
      };
    }
    return piece;
  }

 private:
  Interval owned(SegmentIndex at) const {
    const Residency& residency = model_.residency();
    return residency.partition(at).owned(residency.ranks(at).rank());
  }
  Tensor decoded_values(const ParameterPiece& stretch) const {
    const Segment& segment = model_.model().units()[at_.unit]->segments()[at_.segment];
    const SegmentIndex scales{at_.unit, segment.scales};
    const int64_t first = owned(scales).begin + (stretch.in_segment.begin - owned(at_).begin) / kCodeBlockBytes;
    const Interval blocks{first, first + stretch.in_segment.size() / kCodeBlockBytes};
    const Residency& residency = model_.residency();
    return decoded(model_.context(), {residency.read(at_, stretch.in_segment), residency.read(scales, blocks)},
                   DType::f32);
  }

  const ShardedModel& model_;
  SegmentIndex at_;
};

void add_frozen(const ShardedModel& model, std::vector<OwnedPiece>& pieces) {
  const auto& units = model.model().units();
  for (const SegmentIndex at : segments_of(units, /*trainable=*/false)) {
    if (!writes_for_all(units[at.unit]->segments()[at.segment], model.mesh())) continue;
    const Interval mine = model.residency().partition(at).owned(model.residency().ranks(at).rank());
    const FrozenStretch stretch(model, at);
    for (const ParameterPiece& piece : pieces_in(*units[at.unit], at.segment, mine))
      pieces.push_back(stretch.piece(piece));
  }
}

}  // namespace

std::string worker_prefix(int worker) { return fmt::format("worker{}:", worker); }

std::vector<OwnedPiece> owned_pieces(ShardedModel& model, LocalSteps* local, bool with_frozen) {
  std::vector<OwnedPiece> pieces;
  const std::string prefix = local == nullptr ? "" : worker_prefix(local->workers().index());
  for (const ShardedOptimizer::OwnedState& state : model.optimizer().owned())
    pieces.push_back(piece_of(model.optimizer(), state, prefix));
  if (model.optimizer().pending()) model.optimizer().lane().await_gradients();
  if (local != nullptr)
    for (const LocalSteps::Owned& each : local->owned()) pieces.push_back(piece_of(each));
  // All workers have the same frozen parameters.
  if (with_frozen && (local == nullptr || local->workers().index() == 0)) add_frozen(model, pieces);
  return pieces;
}

std::vector<OwnedBlock> blocks_of(const OwnedPiece& piece) {
  std::vector<OwnedBlock> blocks;
  const int64_t size = piece.in_parameter.size(), origin = piece.in_parameter.begin;
  const std::optional<TensorTile>& tile = piece.parameter->placement.tile;  // a rank has several of one name
  const std::string of_tile = tile ? fmt::format("@{}", tile->kept.front().begin) : "";
  for (int64_t begin = 0; begin < size; begin += kBlockElements) {
    const int64_t end = std::min(size, begin + kBlockElements);
    blocks.push_back(
        {{begin, end},
         {origin + begin, origin + end},
         fmt::format("{}/{}{}[{}:{}]", piece.state, piece.parameter->name, of_tile, origin + begin, origin + end)});
  }
  return blocks;
}

Json part_json(const Parameter& parameter, const Mesh& mesh) {
  if (parameter.placement.is_whole()) return {};
  const TensorPart part = part_held(parameter, mesh);
  Json dims = Json::array();
  for (const std::vector<Interval>& kept : part.kept()) {
    dims.push_back(Json::array());
    for (const Interval& interval : kept) dims.back().push_back({interval.begin, interval.end});
  }
  return dims;
}

SaveRoom::SaveRoom(ShardedModel& model) {
  const ShardedOptimizer& optimizer = model.optimizer();
  int64_t bytes = 0;
  bool reads_files = false;
  for (const KeptStates::OwnedState& state :
       optimizer.kept().owned(/*gradients=*/optimizer.states().offload().delay_after.has_value())) {
    const Source source = optimizer.kept().source(state);
    if (source.place == Source::Place::device) bytes += state.in_parameter.size() * size_of(DType::f32);
    reads_files = reads_files || (source.place == Source::Place::file && !source.passing);
  }
  Memory& memory = *model.context().memory;
  const auto make = [&](int64_t numel, DType dtype) {
    return Tensor::empty(memory, {numel}, dtype, Category::checkpoint, memory.host_pool());
  };
  bytes_ = make(bytes, DType::u8);
  if (reads_files) block_ = make(kBlockElements, DType::f32);
}

std::vector<Tensor> SaveRoom::places_of(const std::vector<OwnedPiece>& pieces) const {
  std::vector<Tensor> places;
  int64_t begin = 0;
  for (const OwnedPiece& piece : pieces) {
    const bool copied = exists() && piece.copied;
    const int64_t bytes = copied ? piece.bytes() : 0;
    places.push_back(copied ? bytes_.flat(begin, begin + bytes).reinterpret(piece.dtype) : Tensor());
    begin += bytes;
  }
  return places;
}

}  // namespace nought
