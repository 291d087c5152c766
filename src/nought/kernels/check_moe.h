// Checks the arguments of the operations of mixtures of experts, once for every backend.
#pragma once

#include "nought/kernels/ops.h"

namespace nought {

void check(const Route& op);
void check(const RouteBackward& op);
void check(const GatherRows& op);
void check(const CombineRows& op);
void check(const ScaleRows& op);
void check(const DotRows& op);
void check(const ClampedSwiglu& op);
void check(const ClampedSwigluBackward& op);

}  // namespace nought
