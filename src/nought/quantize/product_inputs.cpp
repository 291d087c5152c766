#include "nought/quantize/product_inputs.h"

#include <algorithm>
#include <utility>

namespace nought {

class ProductInputs::Tap final : public Kernels {
 public:
  Tap(const Context& inner, const Unit& unit, std::function<Tensor(size_t)> values)
      : inner_(inner), unit_(unit), values_(std::move(values)) {}
  std::string_view name() const override { return inner_.kernels->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { see(op), inner_.kernels->run(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

  std::function<bool(const Product&)> wanted;
  std::vector<Product> seen;
  std::map<Product, InputMoments> moments;

 private:
  template <class Op>
  void see(const Op& /*op*/) {}
  void see(const MatMul& op) {
    const std::optional<Product> product = op.transpose_a ? std::nullopt : product_of(op.b);
    if (!product) return;
    if (std::find(seen.begin(), seen.end(), *product) == seen.end()) seen.push_back(*product);
    if (!wanted || !wanted(*product)) return;
    const int64_t columns = op.a.dim(-1);
    InputMoments& sums = moments[*product];
    if (!sums.sums) sums.sums = inner_.zeros({columns, columns}, DType::f32, Category::workspace);
    const Tensor x = op.a.reshape({op.a.rows(), columns});
    inner_.run(MatMul{.a = x, .b = x, .c = sums.sums, .transpose_a = true, .accumulate = true});
    sums.rows += x.rows();
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

const InputMoments* ProductInputs::of(size_t parameter) const {
  for (const auto& [product, moments] : tap_->moments)
    if (product.first <= parameter && parameter <= product.last) return &moments;
  return nullptr;
}

}  // namespace nought
