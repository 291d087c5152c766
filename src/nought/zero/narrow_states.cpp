#include "nought/zero/narrow_states.h"

#include <algorithm>

#include "nought/tensor/random.h"
#include "nought/zero/placement.h"

namespace nought {

int64_t NarrowStates::stretch() const {
  constexpr int64_t kElements = 65536;
  return round_up(kElements, std::max<int64_t>(options_.state_block, 1));
}

Tensor NarrowStates::workspace(const Tensor& beside, const Shape& shape, DType dtype) const {
  return Tensor::empty(*memory_, shape, dtype, Category::workspace,
                       by_host_ && beside.on_host() ? Pool::host : Pool::device);
}

void NarrowStates::hold(size_t rooms, int64_t most) {
  for (size_t i = 0; i < rooms; ++i)
    held_.push_back(Tensor::empty(*memory_, {std::min(stretch(), most)}, DType::f32, Category::workspace,
                                  by_host_ ? Pool::host : Pool::device));
}

std::vector<Tensor> NarrowStates::rooms(const Tensor& beside, size_t count, int64_t numel) const {
  std::vector<Tensor> taken;
  for (size_t i = 0; i < count; ++i)
    taken.push_back(i < held_.size() ? held_[i].flat(0, numel) : workspace(beside, {numel}, DType::f32));
  return taken;
}

void NarrowStates::in_f32(const Context& by, const TileView& tile, const TrainedPiece& piece, const UpdateSpan& span,
                          const std::function<void(const UpdateSpan&, Interval)>& f) const {
  const int64_t numel = span.parameter.numel();
  const bool narrow_parameter = span.parameter.dtype() != DType::f32;
  const bool narrow_states =
      std::any_of(span.states.begin(), span.states.end(), [](const Tensor& t) { return t.dtype() != DType::f32; });
  if (!narrow_parameter && !narrow_states) return f(span, Interval{0, numel});
  const int64_t stride = this->stretch();
  std::vector<Tensor> room = rooms(
      span.parameter, (narrow_states ? span.states.size() : 0) + (narrow_parameter ? 1 : 0), std::min(stride, numel));
  Tensor wide_parameter;
  if (narrow_parameter) wide_parameter = room.back(), room.pop_back();
  for (int64_t begin = 0; begin < numel; begin += stride) {
    const Interval stretch{begin, std::min(numel, begin + stride)};
    UpdateSpan each = span;
    const Tensor own = span.parameter.flat(stretch.begin, stretch.end);
    each.parameter = narrow_parameter ? wide_parameter.flat(0, stretch.size()) : own;
    if (span.gradient) each.gradient = span.gradient.flat(stretch.begin, stretch.end);
    if (span.parameter_copy) each.parameter_copy = span.parameter_copy.flat(stretch.begin, stretch.end);
    if (narrow_parameter) by.run(Cast{.x = own, .y = each.parameter});
    for (size_t i = 0; i < span.states.size(); ++i) {
      each.states[i] =
          narrow_states ? room[i].flat(0, stretch.size()) : span.states[i].flat(stretch.begin, stretch.end);
      if (narrow_states) decode(by, tile.at(piece.states[i]), stretch, each.states[i]);
    }
    f(each, stretch);
    if (narrow_parameter) narrow(by, piece, StateKind::master, stretch, each.parameter, own);
    for (size_t i = 0; i < room.size(); ++i) encode(by, piece, tile.at(piece.states[i]), stretch, each.states[i]);
  }
}

void NarrowStates::narrow(const Context& by, const TrainedPiece& piece, StateKind kind, Interval stretch,
                          const Tensor& x, const Tensor& into) const {
  if (!options_.stochastic_rounding) return by.run(Cast{.x = x, .y = into});
  const uint64_t run = stable_hash(name_of(kind), options_.seed);
  const uint64_t key = stable_hash(piece.parameter->name, run + static_cast<uint64_t>(number_));
  const int64_t origin = piece.piece.in_parameter.begin;
  int64_t begin = 0;
  for (const Interval& global :
       global_elements(*piece.parameter, mesh_, {origin + stretch.begin, origin + stretch.end})) {
    const int64_t end = begin + global.size();
    by.run(RoundStochastic{.x = x.flat(begin, end), .y = into.flat(begin, end), .key = key, .first = global.begin});
    begin = end;
  }
}

void NarrowStates::encode(const Context& by, const TrainedPiece& piece, const StateValues& state, Interval stretch,
                          const Tensor& x) const {
  const Tensor values = state.values.flat(stretch.begin, stretch.end);
  if (values.dtype() == DType::f32) return by.copy(x, values);
  if (!state.scales) return narrow(by, piece, state.kind, stretch, x, values);
  const int64_t block = options_.state_block;
  by.run(Quantize8{.x = x,
                   .codes = values,
                   .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                   .block = block,
                   .is_signed = !is_square(state.kind)});
}

void NarrowStates::decode(const Context& by, const StateValues& state, Interval stretch, const Tensor& x) const {
  if (!state.scales) return by.run(Cast{.x = state.values.flat(stretch.begin, stretch.end), .y = x});
  const int64_t block = options_.state_block;
  by.run(Dequantize8{.codes = state.values.flat(stretch.begin, stretch.end),
                     .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                     .x = x,
                     .block = block,
                     .is_signed = !is_square(state.kind)});
}

}  // namespace nought
