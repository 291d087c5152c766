// Kernels: the interface that every backend implements, one run() per operation of ops.h. Context: what a rank computes
// with.
#pragma once

#include <memory>

#include "nought/kernels/ops.h"
#include "nought/tensor/stream.h"

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
  /// The tensor's elements converted to T, once all work before has written them. What is decided on the host by values
  /// that kernels computed crosses here.
  template <class T>
  std::vector<T> to_host(const Tensor& tensor) const {
    std::vector<T> values;
    stream->submit([&] { values = tensor.to_vector<T>(); }).wait();
    return values;
  }
  /// A context with fresh memory on the CPU kernels.
  static Context cpu() { return {Memory::create(), make_cpu_kernels()}; }
  /// A context with fresh memory on the reference kernels.
  static Context reference() { return {Memory::create(), make_reference_kernels()}; }
};

}  // namespace nought
