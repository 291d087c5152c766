#include "nought/autograd/weight_view.h"

#include <utility>

namespace nought {

WeightView::WeightView(std::string name, Weight weight, DType dtype)
    : resident_(std::make_shared<Resident>(Resident{std::move(name), std::move(weight), dtype})) {}

DType WeightView::dtype() const {
  if (resident_) return resident_->weight.is_quantized() ? resident_->dtype : resident_->weight.values.dtype();
  return parameter_.is_quantized() ? parameter_.unit().store().dtype() : parameter_.value().dtype();
}

GradSink WeightView::gradient(UnitStore& store) const {
  require(!resident_, "the weight {} has no gradient: it is held as it is, and belongs to no Unit",
          resident_ ? resident_->name : "");
  return parameter_.gradient(store);
}

}  // namespace nought
