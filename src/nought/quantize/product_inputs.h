// ProductInputs: sees which weights a Unit multiplies by, sums x x^T over the inputs of those that are wanted, and
// knows which inputs a norm wrote.
//
// Design goals: layers know nothing of it. It stands between them and the kernels, and finds a weight by where its
// values lie, so that whatever multiplies is seen: q, k and v in one product, or an expert's part of the tokens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "nought/autograd/unit.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Sums over so many rows x of the input of a product.
struct InputMoments {
  Tensor sums = {};                     // x x^T is added here: [columns, columns] f32
  std::vector<double> magnitudes = {};  // |x| is added here: [columns]
  std::vector<float> largest = {};      // the greatest |x|: [columns]
  int64_t rows = 0;
};

/// Error that names the matrix of which these are the inputs, unless all are finite.
void require_finite(const InputMoments& inputs, std::string_view matrix);

class ProductInputs {
 public:
  /// A product with neighbouring parameters of the Unit: q, k and v are one. Indices of Unit::parameters().
  struct Product {
    size_t first = 0, last = 0;
    friend auto operator<=>(const Product&, const Product&) = default;
  };
  /// The parameters of a norm: indices of Unit::parameters(). It multiplies by weight + offset.
  struct Norm {
    size_t weight = 0;
    std::optional<size_t> bias = {};
    double offset = 0;
    friend bool operator==(const Norm&, const Norm&) = default;
  };
  /// values: those of the Unit's segments while it watches.
  ProductInputs(const Context& context, const Unit& unit, std::function<Tensor(size_t segment)> values);
  ~ProductInputs();

  /// A context whose products it sees.
  Context watched() const;
  /// What it sums up from now on, in place of what it has so far; null: nothing.
  void want(std::function<bool(const Product&)> wanted);
  /// The products that it has seen, in the order in which they came first.
  const std::vector<Product>& seen() const;
  /// The norm whose output a product has multiplied, whenever it came; nothing if there is none.
  std::optional<Norm> norm_before(const Product& product) const;
  /// The sums of a parameter's product; null if it was not wanted, or never came.
  InputMoments* of(size_t parameter) const;

 private:
  class Tap;
  std::shared_ptr<Tap> tap_;
  Context context_;
};

}  // namespace nought
