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
/// Own kernels, on the calling thread's OpenMP team; the instruction set is chosen at run time. f64 runs the reference.
std::unique_ptr<Kernels> make_cpu_kernels();

/// Makes OpenMP use one thread for what the calling thread does. Ranks and communication threads share the cores.
void use_one_openmp_thread();

/// What one rank computes with: its memory, its kernels and its compute stream. Passed explicitly, never global. Values
/// cross between the host and the device by its functions alone.
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
    if (stream->runs_inline()) return Tensor::zeros(*memory, shape, dtype, category);
    const Tensor tensor = empty(shape, dtype, category);
    zero(tensor);
    return tensor;
  }
  /// Copies, and sets bytes to 0, in the order of the compute stream.
  void copy(const Tensor& from, const Tensor& to) const { nought::copy(from, to, *stream); }
  void zero(const Tensor& tensor) const { nought::zero(tensor, *stream); }

  /// A new tensor that holds a copy of `values`; the shape must have as many elements.
  template <class T>
  Tensor upload(Shape shape, std::span<const T> values, Category category = Category::activations) const {
    const Tensor tensor = empty(shape, dtype_of_v<T>, category);
    upload(values, tensor);
    return tensor;
  }
  /// Copies `values` to a tensor of their dtype and number.
  template <class T>
  void upload(std::span<const T> values, const Tensor& tensor) const {
    nought::upload(values, tensor, *stream);
  }
  /// The tensor's elements converted to T, once all work before has written them. What is decided on the host by values
  /// that kernels computed crosses here.
  template <class T>
  std::vector<T> to_host(const Tensor& tensor) const {
    return download<T>(tensor, *stream);
  }
  /// The tensor, once all work before is done, where host code reads it: itself if that may be, else a copy.
  Tensor on_host(const Tensor& tensor) const;
  /// What host code has made, where kernels read it: the tensor itself if that may be, else a copy. Undefined stays
  /// undefined.
  Tensor on_device(const Tensor& tensor) const;
  /// A context with fresh memory on the CPU kernels.
  static Context cpu() { return {Memory::create(), make_cpu_kernels()}; }
  /// A context with fresh memory on the reference kernels.
  static Context reference() { return {Memory::create(), make_reference_kernels()}; }
};

}  // namespace nought
