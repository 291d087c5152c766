#include "nought/quantize/calibration_rows.h"

namespace nought {

CalibrationRows::CalibrationRows(Decoder& decoder, const Context& context, std::span<const TokenRow> rows) {
  batches_.reserve(rows.size());
  for (const TokenRow& row : rows) {
    const Shape shape{1, std::ssize(row.inputs)};
    batches_.push_back({.input_ids = Tensor::of<int32_t>(*context.memory, shape, row.inputs),
                        .targets = Tensor::of<int32_t>(*context.memory, shape, row.targets)});
    states_.push_back(decoder.begin(context, batches_.back(), 1));
  }
  hidden_.resize(rows.size());
}

Var CalibrationRows::result(const Section& section, const Context& context, int64_t row) {
  Tape tape(context, /*recording=*/false);
  const auto at = static_cast<size_t>(row);
  const Var x = hidden_[at] ? Tape::constant(hidden_[at]) : Var();
  return run_sections(tape, std::span(&section, 1), x, states_[at]);
}

void CalibrationRows::look(const Section& section, const Context& context) {
  for (int64_t row = 0; row < size(); ++row) result(section, context, row);
}

void CalibrationRows::pass(const Section& section, const Context& context) {
  for (int64_t row = 0; row < size(); ++row) hidden_[static_cast<size_t>(row)] = result(section, context, row).value;
}

DecoderSections::DecoderSections(Decoder& decoder) {
  std::vector<Section> units;
  for (Section& section : decoder.sections())
    if (section.unit != nullptr) units.push_back(std::move(section));
  require(units.size() >= 2, "a decoder has an embedding and a head, found {} Units", units.size());
  embedding = std::move(units.front()), head = std::move(units.back());
  blocks.assign(std::make_move_iterator(units.begin() + 1), std::make_move_iterator(units.end() - 1));
}

}  // namespace nought
