#include "nought/zero/qat_weights.h"

#include <fmt/core.h>

namespace nought {

namespace {

class GridRounding final : public WeightChange {
 public:
  explicit GridRounding(const Qat& qat) : start_(qat.start_step) {
    constexpr int64_t kSquare = 128, kMxGroup = 32;  // of `nought quantize --format fp8` and mxfp4
    switch (qat.mode) {
      case QatMode::int8:
        rounding_ = {.x = {}, .y = {}, .group_size = 0, .bits = 8};
        break;
      case QatMode::fp8:
        rounding_ = {.x = {}, .y = {}, .group_size = kSquare, .square = true, .bits = 8, .codes = CodeTable::e4m3};
        break;
      case QatMode::mxfp4:
        rounding_ = {.x = {}, .y = {}, .group_size = kMxGroup, .bits = 4, .codes = CodeTable::e2m1};
        break;
      default:
        rounding_ = {.x = {}, .y = {}, .group_size = qat.group_size, .bits = 4};
    }
  }

  /// Columns that share a scale; they divide those of a matrix. 0: any number does.
  int64_t divisor() const { return rounding_.codes == CodeTable::e4m3 ? 0 : rounding_.group_size; }
  int64_t start() const override { return start_; }
  Scope scope() const override { return rounding_.square ? Scope::matrix : Scope::rows; }
  void apply(const Context& context, const Parameter& /*parameter*/, int64_t /*updates*/,
             const Tensor& values) const override {
    RoundToGrid rounding = rounding_;
    rounding.x = rounding.y = values;
    if (rounding.group_size == 0) rounding.group_size = values.dim(1);
    context.run(rounding);
  }

 private:
  int64_t start_;
  RoundToGrid rounding_;
};

}  // namespace

std::vector<ChangedWeight> qat_weights(const Qat& qat, const Model& model) {
  const auto rounding = std::make_shared<const GridRounding>(qat);
  std::vector<ChangedWeight> weights;
  for (size_t unit = 0; unit < model.units().size(); ++unit) {
    const std::vector<Parameter>& parameters = model.units()[unit]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      if (!is_linear_matrix(parameter)) continue;
      const std::string place = fmt::format("training.qat = \"{}\"", name_of(qat.mode));
      require<ConfigError>(!parameter.quantized, "{}: {} is kept in codes of few bits already", place, parameter.name);
      require<ConfigError>(!parameter.placement.tile,
                           "{}: {} is cut into tiles: leave training.memory_centric_tiling out", place, parameter.name);
      const int64_t columns = parameter.placement.global[1], divisor = rounding->divisor();
      require<ConfigError>(divisor == 0 || columns % divisor == 0,
                           "{}: groups of {} do not divide the {} columns of {}{}", place, divisor, columns,
                           parameter.name,
                           qat.groups_weights() ? ": choose another training.qat_group_size" : ": choose int8 or fp8");
      weights.push_back({unit, i, rounding});
    }
  }
  return weights;
}

std::string describe_qat_weights(const Qat& qat, const Model& model) {
  const std::vector<ChangedWeight> weights = qat_weights(qat, model);
  const auto name = [&](const ChangedWeight& weight) {
    return layer_of(model.units()[weight.unit]->parameters()[weight.parameter]);
  };
  require<ConfigError>(!weights.empty(), "training.qat = \"{}\": the model has no matrix of a linear layer",
                       name_of(qat.mode));
  return fmt::format("qat {}: {}: {} layers, {} to {}; export: nought quantize MODEL OUT {}", name_of(qat.mode),
                     qat.describe(), weights.size(), name(weights.front()), name(weights.back()),
                     qat.quantize_options());
}

}  // namespace nought
