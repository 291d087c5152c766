#include "support/operation_samples.h"

#include "support/typed_operation_samples.h"

namespace nought::test {
std::unique_ptr<AnyOperation> AnyOperation::moved(const std::function<Tensor(const Operand&)>& f) const {
  std::unique_ptr<AnyOperation> there = clone();
  there->for_each_operand([&](const Operand& operand) {
    if (operand.tensor) const_cast<Tensor&>(operand.tensor) = f(operand);  // `there` is not const
  });
  return there;
}

void for_each_sample(Memory& memory, const std::function<void(const AnyOperation&)>& f) {
  for_each_typed_sample(memory, [&](const auto& op) { f(TypedOperation(op)); });
}

}  // namespace nought::test
