#include "nought/nn/linear.h"

#include <numeric>

#include "nought/parallel/conjugate.h"

namespace nought {

namespace {

/// Whether an adapter trains the biases of some of the layers alone.
bool tells_biases_apart(const Linear::Options& options) {
  if (options.adapter == nullptr) return false;
  const auto trains = [&](const std::string& name) { return options.adapter->saves(name + ".bias"); };
  const auto count = std::count_if(options.names.begin(), options.names.end(), trains);
  return count > 0 && count < std::ssize(options.names);
}

}  // namespace

Linear::Linear(Unit& unit, const Options& options) : layout_(options.layout), ranks_(options.ranks), cut_(options.cut) {
  require<ShapeError>(!options.names.empty() && options.names.size() == options.out.size(),
                      "a linear layer needs one output size per name");
  require<ShapeError>(options.names.size() == 1 || layout_ == WeightLayout::out_in,
                      "{}: weights of layout [in, out] do not join into one product", options.names[0]);
  const bool out_in = layout_ == WeightLayout::out_in, cuts_outputs = cut_ == LinearCut::outputs;
  const auto shape = [&](int64_t in, int64_t out) { return out_in ? Shape{out, in} : Shape{in, out}; };
  const auto [tile, tiles] = options.tile;
  require(tiles == 1 || cut_ != LinearCut::none, "{}: a layer that nothing cuts has no tiles", options.names[0]);
  const TensorRanks slicing = cut_ == LinearCut::none ? options.slicing : TensorRanks();
  const auto add = [&, tile = tile, tiles = tiles](Unit& into, const std::string& name, TensorRanks::Whole whole,
                                                   bool cut, Init init, ParameterRole role) {
    if (!cut) return slicing.add_partial(into, name, whole.global, init, role);
    if (tiles > 1) whole.tile = tile_of(whole.global, whole.dim, whole.fused, tile, tiles);
    return ranks_.add(into, name, whole, init, role);
  };
  const auto part_of = [&, tile = tile, tiles = tiles](int64_t extent) {
    return ranks_.part(tiles > 1 ? tile_of({extent}, 0, {}, tile, tiles).size() : extent).size();
  };
  const auto held = [&](int64_t out) {
    int64_t count = options.fused.empty() ? part_of(out) : 0;
    for (const int64_t fused : options.fused) count += part_of(fused);
    return count;
  };
  std::vector<int64_t> widths;  // outputs of this rank
  std::vector<ParameterView> views;
  for (size_t i = 0; i < options.names.size(); ++i) {
    widths.push_back(cuts_outputs ? held(options.out[i]) : options.out[i]);
    const TensorRanks::Whole whole{shape(options.in, options.out[i]), out_in == cuts_outputs ? 0 : 1,
                                   cuts_outputs ? options.fused : std::vector<int64_t>{}};
    views.push_back(add(unit, options.names[i] + ".weight", whole, cut_ != LinearCut::none, Init::normal(options.std),
                        ParameterRole::matrix));
  }
  const int64_t in = cut_ == LinearCut::inputs ? part_of(options.in) : options.in;
  const int64_t total = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  weight_ = unit.join(views.front(), views.back(), shape(in, total));
  if (options.fp8) {
    Communicator* const sharers = ranks_.several() && cut_ != LinearCut::none ? &ranks_.group() : nullptr;
    fp8_ = {.recipe = options.fp8, .index = options.fp8->add_layer(options.names)};
    // All ranks have one of x and the gradient of y; the other is cut as the weight is.
    fp8_.sharers = {cuts_outputs ? nullptr : sharers, sharers, cuts_outputs ? sharers : nullptr};
    fp8_.row_sharers = cut_ == LinearCut::inputs ? sharers : nullptr;
    if (slicing.several()) fp8_.sharers = {&slicing.group(), nullptr, &slicing.group()};
  }
  if (options.bias) {
    views.clear();
    Unit& bias_unit = options.bias_unit != nullptr ? *options.bias_unit : unit;
    for (size_t i = 0; i < options.names.size(); ++i)
      views.push_back(add(bias_unit, options.names[i] + ".bias", {{options.out[i]}, 0, options.fused}, cuts_outputs,
                          Init::zeros(), ParameterRole::bias));
    if (tells_biases_apart(options)) {
      int64_t begin = 0;
      for (size_t i = 0; i < views.size(); begin += widths[i++])
        biases_.push_back({views[i], begin, begin + widths[i]});
    } else {
      bias_ = bias_unit.join(views.front(), views.back(), {total});
    }
  }
  if (options.adapter == nullptr) return;
  require(tiles == 1, "{}: an adapter's product is not cut into tiles", options.names[0]);
  adapters_ = AdapterProducts(unit, *options.adapter,
                              {.in = options.in,
                               .names = options.names,
                               .out = options.out,
                               .width = std::move(widths),
                               .fused = options.fused,
                               .cut = cut_,
                               .ranks = ranks_,
                               .slicing = slicing,
                               .layout = layout_});
}

Var Linear::operator()(Tape& tape, const Var& x, const TokenSlices& slices) const {
  return leave(tape, multiply(tape, enter(tape, x, slices)), slices);
}

Var Linear::enter(Tape& tape, const Var& x, const TokenSlices& slices) const {
  return cut_ == LinearCut::outputs ? enter_ranks(tape, x, ranks_, slices) : x;
}

Var Linear::multiply(Tape& tape, const Var& x) const {
  const ParameterView bias = adds_bias() ? bias_ : ParameterView{};
  const auto own = [&] { return linear(tape, x, weight_, bias, layout_, fp8_); };
  Var sum = adapters_.add_nothing(tape) ? own()
            : adapters_.is_decomposed() ? adapters_.decomposed(tape, x, weight_, bias, fp8_)
                                        : adapters_.add_to(tape, own(), x);
  for (const ColumnsBias& each : biases_) sum = add_bias(tape, sum, each.bias, each.begin, each.end);
  return sum;
}

Var Linear::leave(Tape& tape, const Var& product, const TokenSlices& slices) const {
  if (cut_ != LinearCut::inputs || !ranks_.several()) return product;
  return leave_ranks(tape, product, ranks_, slices, adds_bias() ? ParameterView{} : bias_);
}

}  // namespace nought
