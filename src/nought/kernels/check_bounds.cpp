#include "nought/kernels/check.h"
#include "nought/kernels/check_argument.h"

namespace nought {

namespace {

void check_bound(std::string_view op, std::string_view name, double bound) {
  require<ShapeError>(bound > 0, "{}: {} is {}, expected a positive number", op, name, bound);
}

}  // namespace

void check_shapes(const Softcap& op) {
  check_float({"Softcap", "x", op.x});
  check_bound("Softcap", "cap", op.cap);
}

void check_shapes(const SoftcapBackward& op) {
  check_float({"SoftcapBackward", "y", op.y});
  check_like({"SoftcapBackward", "d", op.d}, op.y);
  check_bound("SoftcapBackward", "cap", op.cap);
}

void check_shapes(const Clamp& op) {
  check_float({"Clamp", "x", op.x});
  check_like({"Clamp", "y", op.y}, op.x);
  check_bound("Clamp", "limit", op.limit);
}

void check_shapes(const ClampBackward& op) {
  check_float({"ClampBackward", "x", op.x});
  check_like({"ClampBackward", "dy", op.dy}, op.x);
  check_like({"ClampBackward", "dx", op.dx}, op.x);
  check_bound("ClampBackward", "limit", op.limit);
}

}  // namespace nought
