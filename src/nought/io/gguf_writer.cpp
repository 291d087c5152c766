#include "nought/io/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "nought/io/convert.h"

namespace nought {

namespace {

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;           // the format's default
constexpr int64_t kBlockElements = 1 << 18;  // encoded at a time; whole blocks of every type
constexpr size_t kMaxTensorName = 63;        // of ggml, without its final zero

/// The numbers of metadata types, in the order of GgufValue; arrays are 9 and name their elements' type.
constexpr uint32_t kString = 8, kArray = 9;
template <class T>
constexpr uint32_t type_number() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  return kString;
}

class Bytes {
 public:
  template <class T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof(value));
  }
  void put(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    text_ += text;
  }
  void put(const GgufValue& value) {
    std::visit([&](const auto& each) { put_typed(each); }, value);
  }
  void pad() { text_.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text_.size()), kAlignment)), '\0'); }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  void put_typed(const T& value) {
    put(type_number<T>());
    put(value);
  }
  template <class T>
  void put_typed(const std::vector<T>& values) {
    put(kArray);
    put(type_number<T>());
    put(static_cast<uint64_t>(values.size()));
    for (const T& value : values) put(value);
  }
  std::string text_;
};

int64_t encoded_bytes(GgufType type, int64_t elements) {
  const WeightFormat& format = weight_format(type);
  return elements / format.block * format.block_bytes;
}

/// The largest value whose scale fits the format: an f16, but for those that share no scale.
float largest_value(GgufType type) {
  constexpr float kHalf = 65504;
  if (type == GgufType::mxfp4) return std::numeric_limits<float>::max();
  return type == GgufType::q8_0 ? 127 * kHalf : kHalf;
}

}  // namespace

int64_t GgufTensor::bytes() const { return encoded_bytes(type, shape.numel()); }

GgufWriter::GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors)
    : tensors_(std::move(tensors)), written_(tensors_.size()) {
  Bytes head;
  for (const char c : {'G', 'G', 'U', 'F'}) head.put(c);
  head.put(kVersion);
  head.put(static_cast<uint64_t>(tensors_.size()));
  head.put(static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) head.put(key), head.put(value);
  std::set<std::string_view> names;
  int64_t end = 0;
  for (const GgufTensor& tensor : tensors_) {
    require<IoError>(tensor.name.size() <= kMaxTensorName && names.insert(tensor.name).second,
                     "{}: tensor \"{}\" is declared twice or has a name of more than {} bytes", path.string(),
                     tensor.name, kMaxTensorName);
    const int64_t block = weight_format(tensor.type).block;
    require<IoError>(block == 1 || tensor.shape[-1] % block == 0,
                     "{}: tensor \"{}\" {} has rows that are no multiple of {}, {} cannot hold it", path.string(),
                     tensor.name, tensor.shape, block, name_of(tensor.type));
    head.put(tensor.name);
    head.put(static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) head.put(static_cast<uint64_t>(tensor.shape[axis]));
    head.put(static_cast<uint32_t>(tensor.type));
    head.put(static_cast<uint64_t>(end));
    offsets_.push_back(end);
    end = round_up(end + tensor.bytes(), kAlignment);
  }
  head.pad();
  const auto data_begin = static_cast<int64_t>(head.text().size());
  for (int64_t& offset : offsets_) offset += data_begin;
  file_.emplace(std::move(path), data_begin + end);
  file_->write(0, std::as_bytes(std::span(head.text())));
}

void GgufWriter::write(size_t tensor, Interval elements, DType dtype, const std::byte* source) {
  const GgufTensor& spec = tensors_.at(tensor);
  require<ShapeError>(0 <= elements.begin && elements.begin <= elements.end && elements.end <= spec.shape.numel(),
                      "{}: elements [{}, {}) leave tensor \"{}\" {}", file_->path().string(), elements.begin,
                      elements.end, spec.name, spec.shape);
  const int64_t block_size = weight_format(spec.type).block;
  require<IoError>(elements.begin % block_size == 0 && elements.size() % block_size == 0,
                   "{}: elements [{}, {}) of tensor \"{}\" are no whole blocks", file_->path().string(), elements.begin,
                   elements.end, spec.name);
  require<IoError>(written_[tensor].add(elements), "{}: elements [{}, {}) of tensor \"{}\" are written twice",
                   file_->path().string(), elements.begin, elements.end, spec.name);
  for (int64_t begin = elements.begin; begin < elements.end; begin += kBlockElements) {
    const Interval block{begin, std::min(elements.end, begin + kBlockElements)};
    write_block(tensor, block, dtype, source + (begin - elements.begin) * size_of(dtype));
  }
}

void GgufWriter::write_block(size_t tensor, Interval elements, DType dtype, const std::byte* source) {
  const GgufTensor& spec = tensors_[tensor];
  encoded_.resize(static_cast<size_t>(encoded_bytes(spec.type, elements.size())));
  const int64_t block = weight_format(spec.type).block;
  if (block == 1) {
    convert_elements(dtype, source, plain_dtype(spec.type), encoded_.data(), elements.size());
  } else {
    values_.resize(static_cast<size_t>(elements.size()));
    convert_elements(dtype, source, DType::f32, reinterpret_cast<std::byte*>(values_.data()), elements.size());
    for (const float value : values_)
      require<IoError>(std::abs(value) <= largest_value(spec.type),
                       "{}: tensor \"{}\" holds {}, which {} cannot: choose f16 or f32", file_->path().string(),
                       spec.name, value, name_of(spec.type));
    encode_blocks(spec.type, values_.data(), elements.size() / block, encoded_.data());
  }
  file_->write(offsets_[tensor] + encoded_bytes(spec.type, elements.begin), encoded_);
}

void GgufWriter::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i)
    require<IoError>(written_[i].size() == tensors_[i].shape.numel(),
                     "{}: only {} of {} elements of tensor \"{}\" were written", file_->path().string(),
                     written_[i].size(), tensors_[i].shape.numel(), tensors_[i].name);
  file_->commit();
}

}  // namespace nought
