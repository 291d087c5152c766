#include "nought/tensor/tensor.h"

namespace nought {

Tensor::Tensor(std::shared_ptr<Buffer> buffer, int64_t byte_offset, Shape shape, DType dtype)
    : buffer_(std::move(buffer)), byte_offset_(byte_offset), shape_(shape), dtype_(dtype) {
  require<ShapeError>(byte_offset_ >= 0 && byte_offset_ + bytes() <= buffer_->bytes(),
                      "a view of {} bytes at offset {} leaves its buffer of {} bytes", bytes(), byte_offset_,
                      buffer_->bytes());
}

Tensor Tensor::empty(Memory& memory, Shape shape, DType dtype, Category category, Pool pool) {
  return Tensor(memory.allocate(shape.numel() * size_of(dtype), category, pool), 0, shape, dtype);
}

Tensor Tensor::zeros(Memory& memory, Shape shape, DType dtype, Category category, Pool pool) {
  return Tensor(memory.allocate_zeroed(shape.numel() * size_of(dtype), category, pool), 0, shape, dtype);
}

double Tensor::item() const {
  require<ShapeError>(numel() == 1, "item() needs one element, the tensor is {}", *this);
  return to_vector<double>()[0];
}

Tensor Tensor::reshape(Shape shape) const {
  require<ShapeError>(shape.numel() == numel(), "cannot see {} as {}", *this, shape);
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::flat(int64_t begin, int64_t end) const {
  require<ShapeError>(0 <= begin && begin <= end && end <= numel(), "elements [{}, {}) leave {}", begin, end, *this);
  return Tensor(buffer_, byte_offset_ + begin * size_of(dtype_), {end - begin}, dtype_);
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  require<ShapeError>(rank() > 0 && 0 <= begin && begin <= end && end <= dim(0), "rows [{}, {}) leave {}", begin, end,
                      *this);
  Shape shape{end - begin};
  int64_t row = 1;
  for (int axis = 1; axis < rank(); ++axis) shape.push_back(dim(axis)), row *= dim(axis);
  return Tensor(buffer_, byte_offset_ + begin * row * size_of(dtype_), shape, dtype_);
}

Tensor Tensor::reinterpret(DType dtype) const {
  require<ShapeError>(bytes() % size_of(dtype) == 0, "{} does not divide into {}", *this, name_of(dtype));
  return Tensor(buffer_, byte_offset_, {bytes() / size_of(dtype)}, dtype);
}

std::string Tensor::str() const { return defined() ? fmt::format("{}{}", name_of(dtype_), shape_.str()) : "undefined"; }

void copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() != to.dtype() || from.numel() != to.numel())
    fail<ShapeError>("cannot copy {} to {}", from.str(), to.str());
  if (from.bytes() == 0 || from.raw() == to.raw() || to.buffer()->is_virtual()) return;
  std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
}

void zero(const Tensor& tensor) {
  if (tensor.bytes() > 0 && !tensor.buffer()->is_virtual())
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
}

}  // namespace nought
