// Checks the arguments of every operation but the products (see check_products.h), once for every backend.
//
// Each check throws a ShapeError that names the operation, the tensor, what it has and what it should have; indices
// (token ids, targets, positions) that lie outside of their table throw an Error with the place and the value.
#pragma once

#include "nought/kernels/ops.h"

namespace nought {

void check(const SumRows& op);
void check(const Add& op);
void check(const Scale& op);
void check(const Fill& op);
void check(const Cast& op);
void check(const AddTo& op);
void check(const SumTensors& op);
void check(const Activate& op);
void check(const ActivateBackward& op);
void check(const GatedActivate& op);
void check(const GatedActivateBackward& op);
void check(const Softcap& op);
void check(const SoftcapBackward& op);
void check(const RmsNorm& op);
void check(const RmsNormBackward& op);
void check(const LayerNorm& op);
void check(const LayerNormBackward& op);
void check(const Embedding& op);
void check(const EmbeddingBackward& op);
void check(const CopyHeads& op);
void check(const SumHeads& op);
void check(const Rope& op);
void check(const CrossEntropy& op);
void check(const Adam& op);
void check(const Sgd& op);
void check(const Adagrad& op);
void check(const Lion& op);
void check(const LambDirection& op);
void check(const MomentumDirection& op);
void check(const ApplyDirection& op);
void check(const Quantize8& op);
void check(const Dequantize8& op);
void check(const RoundStochastic& op);
void check(const RoundFp8& op);
void check(const AbsMax& op);
void check(const SumSquares& op);

}  // namespace nought
