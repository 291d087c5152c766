// WeightView: the weight of a linear layer, a table or experts, wherever its values are. A choice of operand, not of
// layer: dense or 8-bit codes, trained or frozen, leased with its Unit or held as tensors of its own.
#pragma once

#include <memory>
#include <string>

#include "nought/autograd/unit.h"

namespace nought {

/// Cheap to copy. Of a parameter it stores no tensor, so that a saved view pins no memory.
class WeightView {
 public:
  WeightView() = default;
  /// Leased: parameters of a Unit, dense or kept as codes. The values are there while the Unit is leased.
  WeightView(const ParameterView& parameter) : parameter_(parameter) {}  // NOLINT(google-explicit-constructor)
  /// Resident: tensors that live as long as a view of them, and are not trained. The name is for messages. What is
  /// looked up in codes gets `dtype`; dense values have their own.
  WeightView(std::string name, Weight weight, DType dtype);

  bool defined() const { return resident_ != nullptr || parameter_.defined(); }
  const Shape& shape() const { return resident_ ? resident_->weight.shape() : parameter_.shape(); }
  /// The dtype of the values, or the one that codes stand for.
  DType dtype() const;
  /// True if somebody wants its gradient. Codes are never trained.
  bool trained() const { return !resident_ && parameter_.trained(); }
  /// The values; Error unless the Unit of a parameter is leased.
  Weight value() const { return resident_ ? resident_->weight : parameter_.weight(); }
  /// The Unit of a leased one.
  Unit& unit() const { return parameter_.unit(); }
  /// Where `store` wants its gradient. Error for what has none: codes, and a resident weight.
  GradSink gradient(UnitStore& store) const;

 private:
  struct Resident {
    std::string name;
    Weight weight;
    DType dtype;
  };
  ParameterView parameter_;
  std::shared_ptr<const Resident> resident_;
};

}  // namespace nought
