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

Init start_of_factor(const LowRank& of, char factor, int64_t in) {
  return factor == 'A' ? start_of_a(of, in) : start_of_b(of);
}

LowRankProducts::LowRankProducts(Unit& unit, const ModelAdapter& adapter, const Options& options) {
  const bool cuts_inputs = options.cut == LinearCut::inputs, cuts_outputs = options.cut == LinearCut::outputs;
  std::vector<ParameterView> factors;  // the A of each layer
  int64_t ranks = 0, begin = 0;
  for (size_t i = 0; i < options.names.size(); ++i) {
    const int64_t end = begin + options.width[i];
    if (const LowRank* of = adapter.find(options.names[i])) {
      factors.push_back(declare(unit, options, low_rank_name(options.names[i], 'A', adapter.name),
                                {of->rank, options.in}, cuts_inputs ? 1 : -1, start_of_a(*of, options.in)));
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
      columns_[next++].b = declare(unit, options, low_rank_name(options.names[i], 'B', adapter.name),
                                   {options.out[i], of->rank}, cuts_outputs ? 0 : -1, start_of_b(*of));
  declare_biases(unit, adapter, options);
  declare_magnitudes(unit, adapter, options);
}

void LowRankProducts::declare_biases(Unit& unit, const ModelAdapter& adapter, const Options& options) {
  // Each of the ranks that share inputs adds a part of it, and forms a part of its gradient.
  if (options.cut == LinearCut::inputs) bias_parts_ = options.ranks.size();
  for (size_t i = 0; i < options.names.size(); ++i) {
    const LowRank* of = adapter.find(options.names[i]);
    if (of == nullptr || !of->bias) continue;
    biases_.push_back(declare(unit, options, low_rank_bias_name(options.names[i], adapter.name), {options.out[i]},
                              options.cut == LinearCut::outputs ? 0 : -1, start_of_b(*of)));
  }
  require(biases_.empty() || biases_.size() == columns_.size(), "{}: some of its layers have no bias of B",
          options.names.front());
}

void LowRankProducts::declare_magnitudes(Unit& unit, const ModelAdapter& adapter, const Options& options) {
  layout_ = options.layout;
  if (options.cut == LinearCut::inputs) sharers_ = options.ranks;
  const int dim = options.cut == LinearCut::outputs ? 0 : -1;
  size_t next = 0;
  for (size_t i = 0; i < options.names.size(); ++i) {
    const LowRank* of = adapter.find(options.names[i]);
    if (of == nullptr || !of->decomposed) continue;
    const LowRankColumns& columns = columns_[next++];
    magnitudes_.push_back(
        {declare(unit, options, magnitude_name(options.names[i]), {options.out[i]}, dim, Init::ones()), columns.begin,
         columns.end});
  }
  require(magnitudes_.empty() || magnitudes_.size() == columns_.size(), "{}: some of its layers are decomposed",
          options.names.front());
}

ColumnFactors LowRankProducts::factors_of(const Context& context, const Tensor& weight) const {
  const bool out_in = layout_ == WeightLayout::out_in;
  const int64_t outputs = weight.dim(out_in ? 0 : 1);
  const DType dtype = statistics_dtype(weight.dtype());
  const auto ones = [&] {
    Tensor all = context.empty({outputs}, dtype);
    context.run(Fill{.x = all, .value = 1});
    return all;
  };
  const ColumnFactors result{ones(), ones()};
  int64_t first = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const LowRankColumns& of = columns_[i];
    const int64_t n = of.end - of.begin, rank = of.rank;
    const Tensor rows = out_in ? weight.slice(of.begin, of.end) : weight, a = a_.value().slice(first, first + rank);
    const Tensor sums = context.empty({n + rank * n + rank * rank}, dtype, Category::workspace);
    const Tensor squares = sums.flat(0, n), products = sums.flat(n, n + rank * n).reshape({rank, n}),
                 gram = sums.flat(n + rank * n, sums.numel()).reshape({rank, rank});
    out_in ? context.run(DotRows{.a = rows, .b = rows, .out = squares})
           : context.run(DotColumns{.a = rows, .b = rows, .out = squares});
    context.run(MatMul{.a = a, .b = rows, .c = products, .transpose_b = out_in});
    context.run(MatMul{.a = a, .b = a, .c = gram, .transpose_b = true});
    if (sharers_.several()) sharers_.group().wait(sharers_.group().all_reduce(sums), *context.stream);
    context.run(LowRankNorms{.squares = squares,
                             .products = products,
                             .gram = gram,
                             .b = of.b.value(),
                             .magnitudes = magnitudes_[i].magnitude.value(),
                             .norms = result.norms.flat(of.begin, of.end),
                             .factors = result.factors.flat(of.begin, of.end),
                             .scale = of.scale});
    first += rank;
  }
  return result;
}

Var LowRankProducts::decomposed(Tape& tape, const Var& x, const WeightView& weight, const ParameterView& bias,
                                const Fp8Layer& fp8) const {
  const Context& context = tape.context();
  const ColumnFactors factors = factors_of(context, weight.value().values);
  const LowRankDropout dropout = dropout_on(tape, x.value.rows());
  if (!dropout.active()) {
    const Var sum = add_low_rank(tape, linear(tape, x, weight, {}, layout_, fp8), x, a_, columns_);
    return scale_columns(tape, sum, factors, magnitudes_, bias);
  }
  // As peft has it: y = W x + (factor - 1) W x' + factor * scale * B A x', where x' is what is left of x.
  const Var y = linear(tape, x, weight, bias, layout_, fp8), left = drop(tape, x, dropout);
  const Var own = scale_columns(tape, linear(tape, left, weight, {}, layout_, fp8), factors, magnitudes_, {}, 1);
  const Tensor zeros = context.zeros(y.value.shape(), y.value.dtype());
  const Var added = add_low_rank(tape, Tape::constant(zeros), left, a_, columns_);
  return nought::add_to(tape, nought::add_to(tape, y, own), scale_columns(tape, added, factors, magnitudes_, {}));
}

Var LowRankProducts::add_to(Tape& tape, const Var& y, const Var& x) const {
  Var sum = add_low_rank(tape, y, x, a_, columns_, dropout_on(tape, x.value.rows()));
  for (size_t i = 0; i < biases_.size(); ++i)
    sum = add_bias(tape, sum, biases_[i], columns_[i].begin, columns_[i].end,
                   columns_[i].scale / static_cast<double>(bias_parts_));
  return sum;
}

LowRankDropout LowRankProducts::dropout_on(const Tape& tape, int64_t rows) const {
  LowRankDropout dropout = dropout_;
  if (dropout.probability > 0 && tape.row_keys())
    dropout.rows = tape.row_keys().slice(slice_ * rows, (slice_ + 1) * rows);
  return dropout;
}

}  // namespace nought
