#include "nought/nn/low_rank.h"

#include <cmath>

#include "nought/tensor/random.h"

namespace nought {

namespace {

/// As torch's Linear begins: kaiming_uniform_ with a = sqrt(5).
Init as_linear(int64_t in) { return Init::uniform(1 / std::sqrt(static_cast<double>(in))); }

Init start_of_a(const LowRank& of, int64_t in) {
  return of.start == AdapterStart::gaussian ? Init::normal(1.0 / static_cast<double>(of.rank)) : as_linear(in);
}

Init start_of_b(const LowRank& of) { return of.start == AdapterStart::random ? as_linear(of.rank) : Init::zeros(); }

/// Declares a factor: cut along `dim` with the layer, or, at -1, whole on each rank, which forms a part of its
/// gradient.
ParameterView declare(Unit& unit, const LowRankProducts::Options& options, const std::string& name, Shape shape,
                      int dim, const Init& init) {
  if (dim >= 0)
    return options.ranks.add(unit, name, {shape, dim, dim == 0 ? options.fused : std::vector<int64_t>{}}, init,
                             ParameterRole::adapter);
  const TensorRanks& sharers = options.cut == LinearCut::none ? options.slicing : options.ranks;
  return sharers.add_partial(unit, name, shape, init, ParameterRole::adapter);
}

}  // namespace

LowRankProducts::LowRankProducts(Unit& unit, const ModelAdapter& adapter, const Options& options) {
  const bool cuts_inputs = options.cut == LinearCut::inputs, cuts_outputs = options.cut == LinearCut::outputs;
  std::vector<ParameterView> factors;  // the A of each layer
  int64_t ranks = 0, begin = 0;
  for (size_t i = 0; i < options.names.size(); ++i) {
    const int64_t end = begin + options.width[i];
    if (const LowRank* of = adapter.find(options.names[i])) {
      factors.push_back(declare(unit, options, low_rank_name(options.names[i], 'A'), {of->rank, options.in},
                                cuts_inputs ? 1 : -1, start_of_a(*of, options.in)));
      columns_.push_back({.b = {}, .rank = of->rank, .begin = begin, .end = end, .scale = of->scale});
      ranks += of->rank;
    }
    begin = end;
  }
  if (empty()) return;
  dropout_ = {.probability = adapter.dropout,
              .key = stable_hash(options.names.front()),
              .first_column = cuts_inputs ? options.ranks.part(options.in).begin : 0};
  if (options.cut == LinearCut::none) slice_ = options.slicing.rank();
  const int64_t in = cuts_inputs ? options.ranks.part(options.in).size() : options.in;
  a_ = unit.join(factors.front(), factors.back(), {ranks, in});
  size_t next = 0;
  for (size_t i = 0; i < options.names.size(); ++i)
    if (const LowRank* of = adapter.find(options.names[i]))
      columns_[next++].b = declare(unit, options, low_rank_name(options.names[i], 'B'), {options.out[i], of->rank},
                                   cuts_outputs ? 0 : -1, start_of_b(*of));
}

LowRankDropout LowRankProducts::dropout_on(const Tape& tape, int64_t rows) const {
  LowRankDropout dropout = dropout_;
  if (dropout.probability > 0 && tape.row_keys())
    dropout.rows = tape.row_keys().slice(slice_ * rows, (slice_ + 1) * rows);
  return dropout;
}

}  // namespace nought
