#include "nought/quantize/product_inputs.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace nought {

void require_finite(const InputMoments& inputs, std::string_view matrix) {
  const std::span<const float> sums = inputs.sums.span<float>();
  require<Error>(std::all_of(sums.begin(), sums.end(), [](float sum) { return std::isfinite(sum); }),
                 "{}: its inputs are not finite for the calibration text", matrix);
}

class ProductInputs::Tap final : public Kernels {
 public:
  Tap(const Context& inner, const Unit& unit, std::function<Tensor(size_t)> values)
      : inner_(inner), unit_(unit), values_(std::move(values)) {}
  std::string_view name() const override { return inner_.kernels->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { see(op), inner_.kernels->run(op, stream), see_written(op); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

  std::function<bool(const Product&)> wanted;
  std::vector<Product> seen;
  std::map<Product, InputMoments> moments;
  std::map<Product, std::optional<Norm>> norms;  // what wrote the inputs of each, every time

 private:
  /// Where the output of a norm lies until something else is written there.
  struct Output {
    const std::byte *begin, *end;
    Norm norm;
  };
  template <class Op>
  void see(const Op& /*op*/) {}
  void see(const MatMul& op) {
    const std::optional<Product> product = op.transpose_a ? std::nullopt : product_of(op.b);
    if (!product) return;
    if (std::find(seen.begin(), seen.end(), *product) == seen.end()) seen.push_back(*product);
    const std::optional<Norm> norm = norm_that_wrote(op.a);
    const auto [known, is_new] = norms.emplace(*product, norm);
    if (!is_new && known->second != norm) known->second.reset();
    if (!wanted || !wanted(*product)) return;
    const int64_t columns = op.a.dim(-1);
    InputMoments& sums = moments[*product];
    if (!sums.sums) sums.sums = inner_.zeros({columns, columns}, DType::f32, Category::workspace);
    const Tensor x = op.a.reshape({op.a.rows(), columns});
    inner_.run(MatMul{.a = x, .b = x, .c = sums.sums, .transpose_a = true, .accumulate = true});
    add_magnitudes(x, sums);
    sums.rows += x.rows();
  }
  /// x: [rows, columns] f32.
  static void add_magnitudes(const Tensor& x, InputMoments& moments) {
    const auto columns = static_cast<size_t>(x.dim(1));
    moments.magnitudes.resize(columns), moments.largest.resize(columns);
    const float* value = x.data<float>();
    for (int64_t row = 0; row < x.rows(); ++row)
      for (size_t column = 0; column < columns; ++column, ++value) {
        moments.magnitudes[column] += std::abs(*value);
        moments.largest[column] = std::max(moments.largest[column], std::abs(*value));
      }
  }

  /// What an operation writes is no norm's output any more, but its own if it is one.
  template <class Op>
  void see_written(const Op& op) {
    for_each_operand(op, [&](const Operand& operand) {
      if (!operand.tensor || operand.use.role == Role::in) return;
      const std::byte* const begin = operand.tensor.raw();
      const std::byte* const end = begin + operand.tensor.bytes();
      std::erase_if(outputs_, [&](const Output& output) { return begin < output.end && output.begin < end; });
    });
    if constexpr (std::is_same_v<Op, RmsNorm>)
      add_output(op.y, op.weight, Tensor(), op.weight_offset);
    else if constexpr (std::is_same_v<Op, LayerNorm>)
      add_output(op.y, op.weight, op.bias, 0);
  }
  void add_output(const Tensor& y, const Tensor& weight, const Tensor& bias, double offset) {
    const std::optional<Product> scale = product_of(weight);
    if (!scale || scale->first != scale->last) return;
    Norm norm{.weight = scale->first, .offset = offset};
    if (bias) {
      const std::optional<Product> added = product_of(bias);
      if (!added || added->first != added->last) return;
      norm.bias = added->first;
    }
    outputs_.push_back({y.raw(), y.raw() + y.bytes(), norm});
  }
  std::optional<Norm> norm_that_wrote(const Tensor& x) const {
    for (const Output& output : outputs_)
      if (output.begin == x.raw() && x.raw() + x.bytes() <= output.end) return output.norm;
    return std::nullopt;
  }

  /// The parameters whose values a weight is made of; nothing if it lies elsewhere.
  std::optional<Product> product_of(const Weight& weight) const {
    for (size_t segment = 0; segment < unit_.segments().size(); ++segment) {
      const Tensor values = values_(segment);
      const std::byte* const begin = weight.values.raw();
      if (begin < values.raw() || begin >= values.raw() + values.bytes()) continue;
      const int64_t element = (begin - values.raw()) / size_of(values.dtype());
      const Interval of{element, element + weight.numel()};
      const std::vector<size_t>& inside = unit_.segments()[segment].parameters;
      const auto meets = [&](size_t index) {
        const Interval range = unit_.parameters()[index].range;
        return range.begin < of.end && of.begin < range.end;
      };
      const auto first = std::find_if(inside.begin(), inside.end(), meets);
      const auto last = std::find_if(inside.rbegin(), inside.rend(), meets);
      if (first == inside.end()) return std::nullopt;
      return Product{*first, *last};
    }
    return std::nullopt;
  }

  Context inner_;
  const Unit& unit_;
  std::function<Tensor(size_t)> values_;
  std::vector<Output> outputs_;
};

ProductInputs::ProductInputs(const Context& context, const Unit& unit, std::function<Tensor(size_t segment)> values)
    : tap_(std::make_shared<Tap>(context, unit, std::move(values))), context_(context) {}

ProductInputs::~ProductInputs() = default;

Context ProductInputs::watched() const {
  Context context = context_;
  context.kernels = tap_;
  return context;
}

void ProductInputs::want(std::function<bool(const Product&)> wanted) {
  tap_->wanted = std::move(wanted);
  tap_->moments.clear();
}

const std::vector<ProductInputs::Product>& ProductInputs::seen() const { return tap_->seen; }

std::optional<ProductInputs::Norm> ProductInputs::norm_before(const Product& product) const {
  const auto found = tap_->norms.find(product);
  return found == tap_->norms.end() ? std::nullopt : found->second;
}

InputMoments* ProductInputs::of(size_t parameter) const {
  for (auto& [product, moments] : tap_->moments)
    if (product.first <= parameter && parameter <= product.last) return &moments;
  return nullptr;
}

}  // namespace nought
