#include "nought/kernels/check.h"

namespace nought {

namespace {

void check_values(std::string_view op, const Tensor& x, double bound, std::string_view name) {
  require<ShapeError>(is_float(x.dtype()), "{}: x is {}, expected a float dtype", op, x);
  require<ShapeError>(bound > 0, "{}: {} is {}, expected a positive number", op, name, bound);
}

void check_alike(std::string_view op, std::string_view name, const Tensor& tensor, const Tensor& x) {
  require<ShapeError>(tensor.dtype() == x.dtype() && tensor.numel() == x.numel(), "{}: {} is {}, expected it like {}",
                      op, name, tensor, x);
}

}  // namespace

void check_shapes(const Softcap& op) { check_values("Softcap", op.x, op.cap, "cap"); }

void check_shapes(const SoftcapBackward& op) {
  check_values("SoftcapBackward", op.y, op.cap, "cap");
  check_alike("SoftcapBackward", "d", op.d, op.y);
}

void check_shapes(const Clamp& op) {
  check_values("Clamp", op.x, op.limit, "limit");
  check_alike("Clamp", "y", op.y, op.x);
}

void check_shapes(const ClampBackward& op) {
  check_values("ClampBackward", op.x, op.limit, "limit");
  check_alike("ClampBackward", "dy", op.dy, op.x);
  check_alike("ClampBackward", "dx", op.dx, op.x);
}

}  // namespace nought
