#include "nought/nn/linear.h"

#include <numeric>

namespace nought {

Linear::Linear(Unit& unit, const Options& options) : layout_(options.layout) {
  require<ShapeError>(!options.names.empty() && options.names.size() == options.out.size(),
                      "a linear layer needs one output size per name");
  require<ShapeError>(options.names.size() == 1 || layout_ == WeightLayout::out_in,
                      "{}: weights of layout [in, out] do not join into one product", options.names[0]);
  const int64_t total = std::accumulate(options.out.begin(), options.out.end(), int64_t{0});
  const auto shape = [&](int64_t out) {
    return layout_ == WeightLayout::out_in ? Shape{out, options.in} : Shape{options.in, out};
  };
  std::vector<ParameterView> views;
  for (size_t i = 0; i < options.names.size(); ++i)
    views.push_back(unit.add(options.names[i] + ".weight", shape(options.out[i]), Init::normal(options.std)));
  weight_ = unit.join(views.front(), views.back(), shape(total));
  if (options.fp8) fp8_ = {options.fp8, options.fp8->add_layer()};
  if (!options.bias) return;
  views.clear();
  for (size_t i = 0; i < options.names.size(); ++i)
    views.push_back(unit.add(options.names[i] + ".bias", {options.out[i]}, Init::zeros(), ParameterRole::bias));
  bias_ = unit.join(views.front(), views.back(), {total});
}

}  // namespace nought
