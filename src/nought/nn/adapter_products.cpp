#include "nought/nn/adapter_products.h"

namespace nought {

AdapterProducts::AdapterProducts(Unit& unit, const ModelAdapter& adapter, const LowRankProducts::Options& options)
    : own_(unit, adapter, options) {
  for (const ModelAdapter& each : adapter.choices) choices_.emplace_back(unit, each, options);
  const auto is_empty = [](const LowRankProducts& each) { return each.empty(); };
  if (std::all_of(choices_.begin(), choices_.end(), is_empty)) choices_.clear();
}

bool AdapterProducts::add_nothing(const Tape& tape) const {
  return (own_.empty() && choices_.empty()) || tape.leaves_out_adapters();
}

Var AdapterProducts::add_to(Tape& tape, const Var& y, const Var& x) const {
  const Var sum = own_.empty() ? y : own_.add_to(tape, y, x);
  if (choices_.empty()) return sum;
  require(!tape.recording(), "rows that choose their adapters are not trained");
  for (const AdapterRows& each : tape.adapter_rows()) {
    const LowRankProducts& chosen = choices_.at(each.adapter);
    const auto rows_of = [&](const Var& all) {
      return Tape::constant(all.value.slice(each.rows.begin, each.rows.end));
    };
    if (!chosen.empty()) chosen.add_to(tape, rows_of(sum), rows_of(x));
  }
  return sum;
}

}  // namespace nought
