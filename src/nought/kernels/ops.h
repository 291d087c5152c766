// Every operation: its argument struct says what it reads, what it writes, and what it means.
//
// Conventions: tensors are contiguous and row-major; the last dimension is the feature dimension and all others fold
// into `rows` (tokens). "float" means f64, f32, bf16 or f16, and one operation's tensors share it unless said
// otherwise. Sums, norms and softmax accumulate in fp32 (f64 for f64) whatever the dtype; a result is rounded once.
// `accumulate` adds to what the output holds instead of overwriting it. Outputs are allocated by the caller. Results
// do not depend on the number of threads. Each struct has a reference implementation in kernels/reference, and lists
// its members in visit() (operation.h).
#pragma once

#include "nought/kernels/ops/activations.h"
#include "nought/kernels/ops/attention.h"
#include "nought/kernels/ops/compression.h"
#include "nought/kernels/ops/delta_rule.h"
#include "nought/kernels/ops/dropout.h"
#include "nought/kernels/ops/elementwise.h"
#include "nought/kernels/ops/embedding.h"
#include "nought/kernels/ops/grids.h"
#include "nought/kernels/ops/heads.h"
#include "nought/kernels/ops/loss.h"
#include "nought/kernels/ops/magnitudes.h"
#include "nought/kernels/ops/matmul.h"
#include "nought/kernels/ops/moe.h"
#include "nought/kernels/ops/norms.h"
#include "nought/kernels/ops/optimizers.h"
#include "nought/kernels/ops/rounding.h"
#include "nought/kernels/ops/short_conv.h"
#include "nought/kernels/ops/sums.h"
#include "nought/kernels/ops/wire.h"

// Every operation once. Interfaces, backends, checks and what runs around kernels are generated from this list.
// clang-format off
#define NOUGHT_OPERATIONS(X)                                                                                      \
  X(MatMul) X(SumRows) X(SumTensors) X(SumElements) X(SumSquares) X(AbsMax)                                       \
  X(Add) X(Scale) X(Fill) X(Cast) X(AddTo)                                                                        \
  X(Activate) X(ActivateBackward) X(GatedActivate) X(GatedActivateBackward) X(ClampedSwiglu)                      \
  X(ClampedSwigluBackward) X(Softcap) X(SoftcapBackward) X(Clamp) X(ClampBackward) X(Dropout)                      \
  X(RmsNorm) X(RmsNormBackward) X(LayerNorm) X(LayerNormBackward)                                                 \
  X(Embedding) X(EmbeddingBackward)                                                                               \
  X(CopyHeads) X(EncodeHeads) X(SumHeads) X(Rope) X(Attention) X(AttentionBackward) X(MergeAttention)             \
  X(ShortConv) X(ShortConvBackward) X(DeltaRule) X(DeltaRuleBackward) X(Gate) X(GateBackward)                                                                               \
  X(Route) X(RouteBackward) X(BalanceLoss) X(GroupByExpert) X(GatherRows) X(CombineRows) X(ScaleRows) X(DotRows)  \
  X(ScaleColumns) X(DotColumns) X(LowRankNorms)                                                                   \
  X(CrossEntropy) X(JensenShannon)                                                                                \
  X(Adam) X(Sgd) X(Adagrad) X(RmsProp) X(Lion) X(LambDirection) X(MomentumDirection) X(ApplyDirection) X(CustomUpdate)       \
  X(Quantize8) X(Dequantize8) X(QuantizeBlocks) X(DequantizeBlocks) X(DecodeScales) X(RoundStochastic) X(RoundFp8) \
  X(EncodeMxfp8) X(DecodeMxfp8) X(RoundToGrid) X(RowRanges) X(RoundRows) X(KeepMasked) X(EncodeWire) X(DecodeWire)                                                       \
  X(OneBitEncode) X(OneBitDecode) X(Precondition) X(GreatestRatio) X(Orthonormalize)
// clang-format on

namespace nought {

#define NOUGHT_DESCRIBE(Op)                                                     \
  static_assert(Visitable<Op>, #Op " has no visit(): see kernels/operation.h"); \
  /** The operation's name in messages and profiles. */                         \
  constexpr std::string_view operation_name(const Op& /*op*/) { return #Op; }
NOUGHT_OPERATIONS(NOUGHT_DESCRIBE)
#undef NOUGHT_DESCRIBE

}  // namespace nought
