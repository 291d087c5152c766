// Checks the arguments of every operation, once for every backend.
//
// What visit() lists must be defined, unless it is optional, and lie in one pool of memory: that is checked by the
// list. What shapes demand is checked by one check_shapes() per operation. A check throws an error that names the
// operation, the tensor, what it has and what it should have. Indices (token ids, targets, positions) that lie outside
// of their table throw an Error with the place and the value.
#pragma once

#include "nought/kernels/ops.h"

namespace nought {

/// Checks operands one by one. ShapeError if one is undefined and not optional; DeviceError if it lies in a file, or in
/// another pool than those before.
class OperandChecks {
 public:
  explicit OperandChecks(std::string_view operation) : operation_(operation) {}
  void operator()(const Operand& operand);

 private:
  std::string_view operation_, first_;  // The first operand that is defined,
  Pool pool_ = Pool::device;            // and where it lies.
};

// ShapeError unless the shapes and dtypes of the operation's tensors fit together. Operands are defined.
#define NOUGHT_CHECK(Op) void check_shapes(const Op& op);
NOUGHT_OPERATIONS(NOUGHT_CHECK)
#undef NOUGHT_CHECK

/// ShapeError unless codes have scales of f16 for whole blocks. `name` is the weight's in the operation.
void check_codes(std::string_view operation, std::string_view name, const Weight& weight);

/// ShapeError unless the spans cover the tokens in order, and continue states that are there; states: how many there
/// are, -1: none may be continued.
void check_state_spans(std::string_view op, const std::vector<StateSpan>& spans, int64_t tokens, int64_t states = -1);

/// Throws unless the operation can run.
template <class Op>
void check(const Op& op) {
  for_each_operand(op, OperandChecks(operation_name(op)));
  check_shapes(op);
}

}  // namespace nought
