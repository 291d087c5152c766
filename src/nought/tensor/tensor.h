// Tensor: a contiguous, row-major array with value semantics. Copies share the bytes; slices are views of the Buffer.
//
// Non-goals: strides, broadcasting, arithmetic. Operations live in kernels/; a kernel that reads a part of each row is
// given an offset and a stride in its argument struct.
//
// Host code reads and writes no bytes of a device. What crosses between the two, and what is copied or cleared there,
// goes through the functions at the end of this file, which take the stream that orders it.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "nought/tensor/dtype.h"
#include "nought/tensor/memory.h"
#include "nought/tensor/shape.h"

namespace nought {

/// `count` elements of the dtype, converted to T.
template <class T>
std::vector<T> elements_as(DType dtype, const std::byte* elements, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  visit_dtype(dtype, [&](auto tag) {
    const auto* source = reinterpret_cast<const typename decltype(tag)::type*>(elements);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(source[i]);
  });
  return values;
}

class Tensor {
 public:
  Tensor() = default;  // undefined: no bytes, defined() is false
  Tensor(std::shared_ptr<Buffer> buffer, int64_t byte_offset, Shape shape, DType dtype);

  /// A new tensor with undefined contents.
  static Tensor empty(Memory& memory, Shape shape, DType dtype, Category category, Pool pool = Pool::device);
  /// A new tensor of zeros, where host code may write. Context::zeros() makes one on any device.
  static Tensor zeros(Memory& memory, Shape shape, DType dtype, Category category, Pool pool = Pool::device);
  /// A new tensor that holds a copy of `values`, where host code may write (Memory::host_pool()); the shape must have
  /// as many elements. Context::upload() makes one on any device.
  template <class T>
  static Tensor of(Memory& memory, Shape shape, std::span<const T> values, Category category = Category::activations) {
    require<ShapeError>(shape.numel() == static_cast<int64_t>(values.size()), "{} values do not fill shape {}",
                        values.size(), shape);
    Tensor tensor = empty(memory, shape, dtype_of_v<T>, category, memory.host_pool());
    if (!values.empty()) std::memcpy(tensor.raw(), values.data(), values.size_bytes());
    return tensor;
  }

  bool defined() const { return buffer_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  /// The product of all dimensions but the last: a [B, T, H] tensor has B * T rows of H elements.
  int64_t rows() const { return rank() == 0 || dim(-1) == 0 ? 1 : numel() / dim(-1); }

  /// True if host code may read and write the bytes.
  bool on_host() const { return !buffer_ || !buffer_->behind(); }
  /// The tensor as work on a stream captures it: kernels use its address, it keeps the bytes until the work is done,
  /// and it counts for nothing in unique(). The tensor itself where the host and kernels share addresses.
  Tensor in_flight() const {
    Tensor tensor = *this;
    if (!on_host()) tensor.buffer_ = buffer_->behind();
    return tensor;
  }

  std::byte* raw() const { return buffer_ ? buffer_->data() + byte_offset_ : nullptr; }
  /// The elements; ShapeError if T is not the tensor's element type.
  template <class T>
  T* data() const {
    if (dtype_ != dtype_of_v<T>) [[unlikely]]
      fail<ShapeError>("the tensor holds {}, not {}", name_of(dtype_), name_of(dtype_of_v<T>));
    return reinterpret_cast<T*>(raw());
  }
  /// The elements as a std::span; ShapeError as in data().
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<size_t>(numel())};
  }
  /// The only element of a one-element tensor of any dtype. DeviceError unless on_host(), as for to_vector().
  double item() const;
  /// All elements converted to T, for tests, reports and files.
  template <class T>
  std::vector<T> to_vector() const {
    require_host("to_vector()");
    return elements_as<T>(dtype_, raw(), numel());
  }

  /// The elements in another shape.
  Tensor reshape(Shape shape) const;
  /// Elements [begin, end) of the flattened tensor, as a rank-1 view.
  Tensor flat(int64_t begin, int64_t end) const;
  /// Rows [begin, end) along the first dimension, as a view.
  Tensor slice(int64_t begin, int64_t end) const;
  /// The bytes under another dtype of equal total size, as a rank-1 view.
  Tensor reinterpret(DType dtype) const;

  /// True if no other Tensor shares the bytes, so that they may be overwritten.
  bool unique() const { return buffer_.use_count() == 1; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  /// "bf16[4, 256]"
  std::string str() const;

 private:
  void require_host(std::string_view call) const {
    if (!on_host()) [[unlikely]]
      refuse_host(call);
  }
  [[noreturn]] void refuse_host(std::string_view call) const;

  std::shared_ptr<Buffer> buffer_;
  int64_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Copies the bytes of `from` to `to`, which has the same dtype and number of elements, when the stream has done what
/// it was given before. Their bytes must not overlap. Either may lie in the memory of the host. DeviceError if they lie
/// in the memories of two ranks: a Communicator moves what is another rank's.
void copy(const Tensor& from, const Tensor& to, Stream& stream);
/// Sets all bytes to 0, in the order of the stream.
void zero(const Tensor& tensor, Stream& stream);

/// Copies `bytes`, which may be gone when this returns, to the tensor, which has as many.
void upload_bytes(std::span<const std::byte> bytes, const Tensor& tensor, Stream& stream);
/// Copies `values` to a tensor of their dtype and number. ShapeError if it has others.
template <class T>
void upload(std::span<const T> values, const Tensor& tensor, Stream& stream) {
  require<ShapeError>(tensor.dtype() == dtype_of_v<T>, "{} values do not fill {}", name_of(dtype_of_v<T>), tensor);
  upload_bytes(std::as_bytes(values), tensor, stream);
}
/// The tensor's bytes, once the stream has done what it was given before.
std::vector<std::byte> download_bytes(const Tensor& tensor, Stream& stream);
/// The tensor's elements converted to T, once the stream has done what it was given before.
template <class T>
std::vector<T> download(const Tensor& tensor, Stream& stream) {
  if (stream.runs_inline()) return tensor.to_vector<T>();
  const std::vector<std::byte> bytes = download_bytes(tensor, stream);
  return elements_as<T>(tensor.dtype(), bytes.data(), tensor.numel());
}

}  // namespace nought
