// The operations that device code exists for, by the argument structs of kernels/ops: start() enqueues and returns.
// Their operands have the addresses of kernels.
#pragma once

#include "nought/cuda/backend/place.h"
#include "nought/kernels/ops/activations.h"
#include "nought/kernels/ops/compression.h"
#include "nought/kernels/ops/dropout.h"
#include "nought/kernels/ops/elementwise.h"
#include "nought/kernels/ops/embedding.h"
#include "nought/kernels/ops/loss.h"
#include "nought/kernels/ops/magnitudes.h"
#include "nought/kernels/ops/moe.h"
#include "nought/kernels/ops/norms.h"
#include "nought/kernels/ops/optimizers.h"
#include "nought/kernels/ops/rounding.h"
#include "nought/kernels/ops/sums.h"
#include "nought/kernels/ops/wire.h"

namespace nought::cuda {

// elementwise.cu
void start(const Add& op, Place& at);
void start(const Scale& op, Place& at);
void start(const Fill& op, Place& at);
void start(const Cast& op, Place& at);
void start(const AddTo& op, Place& at);

// rounding.cu
void start(const RoundStochastic& op, Place& at);
void start(const RoundFp8& op, Place& at);

// sums.cu
void start(const SumTensors& op, Place& at);
void start(const SumElements& op, Place& at);
void start(const SumSquares& op, Place& at);
void start(const AbsMax& op, Place& at);
void start(const SumRows& op, Place& at);

// norms.cu
void start(const RmsNorm& op, Place& at);
void start(const RmsNormBackward& op, Place& at);
void start(const LayerNorm& op, Place& at);
void start(const LayerNormBackward& op, Place& at);

// activations.cu
void start(const Activate& op, Place& at);
void start(const ActivateBackward& op, Place& at);
void start(const GatedActivate& op, Place& at);
void start(const GatedActivateBackward& op, Place& at);
void start(const ClampedSwiglu& op, Place& at);
void start(const ClampedSwigluBackward& op, Place& at);
void start(const Softcap& op, Place& at);
void start(const SoftcapBackward& op, Place& at);
void start(const Clamp& op, Place& at);
void start(const ClampBackward& op, Place& at);

// dropout.cu
void start(const Dropout& op, Place& at);

// magnitudes.cu
void start(const ScaleColumns& op, Place& at);
void start(const DotColumns& op, Place& at);
void start(const LowRankNorms& op, Place& at);

// embedding.cu
void start(const Embedding& op, Place& at);
void start(const EmbeddingBackward& op, Place& at);

// loss.cu
void start(const CrossEntropy& op, Place& at);
void start(const JensenShannon& op, Place& at);

// routing.cu
void start(const Route& op, Place& at);
void start(const RouteBackward& op, Place& at);
void start(const BalanceLoss& op, Place& at);

// grouping.cu
void start(const GroupByExpert& op, Place& at);
void start(const GatherRows& op, Place& at);
void start(const CombineRows& op, Place& at);
void start(const ScaleRows& op, Place& at);
void start(const DotRows& op, Place& at);

// optimizers.cu
void start(const Adam& op, Place& at);
void start(const Sgd& op, Place& at);
void start(const Adagrad& op, Place& at);
void start(const RmsProp& op, Place& at);
void start(const Lion& op, Place& at);
void start(const LambDirection& op, Place& at);
void start(const MomentumDirection& op, Place& at);
void start(const ApplyDirection& op, Place& at);

// codes.cu
void start(const Quantize8& op, Place& at);
void start(const Dequantize8& op, Place& at);
void start(const QuantizeBlocks& op, Place& at);
void start(const DequantizeBlocks& op, Place& at);
void start(const DecodeScales& op, Place& at);
void start(const EncodeMxfp8& op, Place& at);
void start(const DecodeMxfp8& op, Place& at);

// wire.cu
void start(const EncodeWire& op, Place& at);
void start(const DecodeWire& op, Place& at);

// compression.cu
void start(const OneBitEncode& op, Place& at);
void start(const OneBitDecode& op, Place& at);
void start(const Precondition& op, Place& at);
void start(const GreatestRatio& op, Place& at);

// orthonormal.cu
void start(const Orthonormalize& op, Place& at);

}  // namespace nought::cuda
