#include "nought/nn/model.h"

#include <algorithm>

namespace nought {

namespace {

/// The state of a model that is one call.
struct WholeBatch final : MicroBatchState {
  WholeBatch(const Batch& batch, double gradient_scale) : batch(batch), gradient_scale(gradient_scale) {}
  const Batch& batch;
  double gradient_scale;
};

}  // namespace

std::vector<Section> Model::sections() {
  return {{.unit = nullptr, .body = [this](Tape& tape, const Var&, MicroBatchState& state) {
             const auto& whole = static_cast<const WholeBatch&>(state);
             return loss(tape, whole.batch, whole.gradient_scale);
           }}};
}

std::shared_ptr<MicroBatchState> Model::begin(const Context& /*context*/, const Batch& batch, double gradient_scale) {
  return std::make_shared<WholeBatch>(batch, gradient_scale);
}

std::vector<Chunk> Model::chunks() { return {{.sections = sections()}}; }

Shape Model::hidden_shape(const MicroBatchState& /*state*/) const {
  fail("this model is not cut into pipeline stages: it has no chunks()");
}

std::vector<UnitPass> Model::passes(bool backward, const Chunk& chunk) const {
  std::vector<Section> all = chunk.sections;
  if (std::all_of(all.begin(), all.end(), [](const Section& section) { return section.unit == nullptr; })) {
    all.clear();
    for (const auto& unit : units_)
      if (unit->tile_of() == nullptr) all.push_back({.unit = unit.get()});
  }
  return backward ? backward_passes(all) : forward_passes(all);
}

}  // namespace nought
