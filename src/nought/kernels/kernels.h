// The interface that every backend implements: one run() per operation of ops.h.
//
// To add an operation: its struct in ops.h, its line in NOUGHT_OPERATIONS, and the compiler lists what is missing.
#pragma once

#include <memory>

#include "nought/kernels/ops.h"
#include "nought/tensor/stream.h"

// Every operation of ops.h, once: interfaces, backends and traces are generated from this list.
// clang-format off
#define NOUGHT_OPERATIONS(X)                                                                                      \
  X(MatMul) X(SumRows) X(Add) X(Scale) X(Fill) X(Cast) X(AddTo) X(SumTensors) X(Activate) X(ActivateBackward)     \
  X(GatedActivate) X(GatedActivateBackward) X(Softcap) X(SoftcapBackward) X(RmsNorm) X(RmsNormBackward) X(LayerNorm) X(LayerNormBackward)       \
  X(Embedding) X(EmbeddingBackward) X(CopyHeads) X(SumHeads) X(Rope) X(Attention) X(AttentionBackward)            \
  X(Route) X(RouteBackward) X(GatherRows) X(CombineRows) X(ScaleRows) X(DotRows) X(ClampedSwiglu)                \
  X(ClampedSwigluBackward)                                                                                        \
  X(CrossEntropy) X(Adam) X(Sgd) X(Adagrad) X(Lion) X(LambDirection) X(MomentumDirection) X(ApplyDirection)       \
  X(Quantize8) X(Dequantize8) X(RoundStochastic) X(RoundFp8) X(AbsMax) X(SumSquares)
// clang-format on

namespace nought {

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string_view name() const = 0;
#define NOUGHT_RUN(Op) virtual void run(const Op& op, Stream& stream) = 0;
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN
};

/// Plain loops: the meaning of each operation, for every dtype.
std::unique_ptr<Kernels> make_reference_kernels();
/// oneDNN and Highway, on the calling thread's OpenMP team; instruction set chosen at run time. f64 runs the reference.
std::unique_ptr<Kernels> make_cpu_kernels();

/// What one rank computes with: its memory, its kernels and its compute stream. Passed explicitly, never global.
struct Context {
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Kernels> kernels;
  std::shared_ptr<Stream> stream = std::make_shared<Stream>();

  template <class Op>
  void run(const Op& op) const {
    kernels->run(op, *stream);
  }
  Tensor empty(Shape shape, DType dtype, Category category = Category::activations) const {
    return Tensor::empty(*memory, shape, dtype, category);
  }
  Tensor zeros(Shape shape, DType dtype, Category category = Category::activations) const {
    return Tensor::zeros(*memory, shape, dtype, category);
  }
  /// A context with fresh memory on the CPU kernels.
  static Context cpu() { return {Memory::create(), make_cpu_kernels()}; }
  /// A context with fresh memory on the reference kernels.
  static Context reference() { return {Memory::create(), make_reference_kernels()}; }
};

}  // namespace nought
