#include "nought/tensor/tensor.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

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
  require_host("item()");
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

void Tensor::refuse_host(std::string_view call) const {
  fail<DeviceError>("{} of {}, which lies on the device {}: host code gets values by Context::to_host()", call, str(),
                    buffer_->memory().device().name());
}

namespace {

/// On a stream that runs inline the calling thread does the work: it needs access.
void require_host_stream(std::string_view call, const Tensor& tensor) {
  if (!tensor.on_host())
    fail<DeviceError>("{} of {} on a stream of the host, expected one of the device {}", call, tensor,
                      tensor.buffer()->memory().device().name());
}

/// A tensor as a task captures it: the bytes are held by the task if they lie on the device, else beside it.
struct Captured {
  explicit Captured(const Tensor& tensor)
      : bytes(tensor.in_flight().raw()), of_device(tensor.on_host() ? Tensor() : tensor.in_flight()) {}
  std::byte* bytes;
  Tensor of_device;
};

/// Runs `work` on the bytes of the tensors, in the order of the stream: at once where that runs inline.
template <class Work, class... Tensors>
void in_order(Stream& stream, std::string_view call, const Work& work, const Tensors&... tensors) {
  if (stream.runs_inline()) {
    for (const Tensor* tensor : {&tensors...}) require_host_stream(call, *tensor);
    return work(tensors.raw()...);
  }
  auto of_host = std::make_shared<std::vector<Tensor>>();
  for (const Tensor* tensor : {&tensors...})
    if (tensor->on_host()) of_host->push_back(*tensor);
  auto task = [work, ... captured = Captured(tensors)] { work(captured.bytes...); };
  if (of_host->empty()) {
    stream.submit(std::move(task));
  } else {
    stream.submit_with(std::move(task), std::move(of_host));
  }
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream& stream) {
  if (from.dtype() != to.dtype() || from.numel() != to.numel())
    fail<ShapeError>("cannot copy {} to {}", from.str(), to.str());
  if (from.bytes() == 0 || from.raw() == to.raw()) return;
  if (const Pool source = from.buffer()->pool(), target = to.buffer()->pool(); source != target)
    to.buffer()->memory().ledger().add_moved(source, target, from.bytes());
  const bool moves = !to.buffer()->is_virtual();
  if (!moves && stream.runs_inline()) return;
  if (!from.on_host() && !to.on_host() && &from.buffer()->memory() != &to.buffer()->memory())
    fail<DeviceError>("copy: {} lies in the memory of another rank than {}", from, to);
  const auto count = static_cast<size_t>(from.bytes());
  in_order(
      stream, "copy",
      [count, moves, &stream](const std::byte* source, std::byte* target) {
        if (moves) stream.copy_bytes(source, target, count);
      },
      from, to);
}

void zero(const Tensor& tensor, Stream& stream) {
  if (tensor.bytes() == 0 || tensor.buffer()->is_virtual()) return;
  const auto count = static_cast<size_t>(tensor.bytes());
  in_order(
      stream, "zero", [count, &stream](std::byte* target) { stream.clear_bytes(target, count); }, tensor);
}

void upload_bytes(std::span<const std::byte> bytes, const Tensor& tensor, Stream& stream) {
  require<ShapeError>(static_cast<int64_t>(bytes.size()) == tensor.bytes(), "{} bytes do not fill {}", bytes.size(),
                      tensor);
  if (bytes.empty()) return;
  if (stream.runs_inline()) {
    require_host_stream("upload", tensor);
    std::memcpy(tensor.raw(), bytes.data(), bytes.size());
    return;
  }
  stream.submit([&stream, to = tensor.in_flight(), kept = std::vector<std::byte>(bytes.begin(), bytes.end())] {
    stream.copy_bytes(kept.data(), to.raw(), kept.size());
  });
}

std::vector<std::byte> download_bytes(const Tensor& tensor, Stream& stream) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  if (bytes.empty()) return bytes;
  stream.submit([&, from = tensor.in_flight()] { stream.copy_bytes(from.raw(), bytes.data(), bytes.size()); }).wait();
  return bytes;
}

}  // namespace nought
