// Tensor: a contiguous, row-major array with value semantics. Copies share the bytes; slices are views of the Buffer.
//
// Non-goals: strides, broadcasting, arithmetic. Operations live in kernels/; a kernel that reads a part of each row is
// given an offset and a stride in its argument struct.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "nought/tensor/dtype.h"
#include "nought/tensor/memory.h"
#include "nought/tensor/shape.h"

namespace nought {

class Tensor {
 public:
  Tensor() = default;  // undefined: no bytes, defined() is false
  Tensor(std::shared_ptr<Buffer> buffer, int64_t byte_offset, Shape shape, DType dtype);

  /// A new tensor with undefined contents.
  static Tensor empty(Memory& memory, Shape shape, DType dtype, Category category, Pool pool = Pool::device);
  /// A new tensor of zeros.
  static Tensor zeros(Memory& memory, Shape shape, DType dtype, Category category, Pool pool = Pool::device);
  /// A new tensor that holds a copy of `values`; the shape must have as many elements.
  template <class T>
  static Tensor of(Memory& memory, Shape shape, std::span<const T> values, Category category = Category::activations) {
    require<ShapeError>(shape.numel() == static_cast<int64_t>(values.size()), "{} values do not fill shape {}",
                        values.size(), shape);
    Tensor tensor = empty(memory, shape, dtype_of_v<T>, category);
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
  /// The only element of a one-element tensor of any dtype.
  double item() const;
  /// All elements converted to T, for tests, reports and files.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    visit_dtype(dtype_, [&](auto tag) {
      using E = typename decltype(tag)::type;
      const E* source = data<E>();
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(source[i]);
    });
    return values;
  }

  /// The same elements in another shape.
  Tensor reshape(Shape shape) const;
  /// Elements [begin, end) of the flattened tensor, as a rank-1 view.
  Tensor flat(int64_t begin, int64_t end) const;
  /// Rows [begin, end) along the first dimension, as a view.
  Tensor slice(int64_t begin, int64_t end) const;
  /// The same bytes under another dtype of equal total size, as a rank-1 view.
  Tensor reinterpret(DType dtype) const;

  /// True if no other Tensor shares the bytes, so that they may be overwritten.
  bool unique() const { return buffer_.use_count() == 1; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  /// "bf16[4, 256]"
  std::string str() const;

 private:
  std::shared_ptr<Buffer> buffer_;
  int64_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Copies the bytes of `from` to `to`, which has the same dtype and number of elements. Their bytes must not overlap.
void copy(const Tensor& from, const Tensor& to);
/// Sets all bytes to 0.
void zero(const Tensor& tensor);

}  // namespace nought
