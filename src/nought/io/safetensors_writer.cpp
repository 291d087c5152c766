#include "nought/io/safetensors_writer.h"

#include <algorithm>

#include "nought/base/json.h"
#include "nought/io/convert.h"

namespace nought {

namespace {

constexpr int64_t kHeaderAlignment = 8;
constexpr int64_t kConvertBlock = 1 << 16;  // elements converted at a time

std::string header_of(const std::vector<TensorEntry>& entries) {
  // Member by member: an ordered object would look through all its members for each new one.
  std::string text = R"({"__metadata__":{"format":"pt"})";  // transformers refuses files without it
  for (const TensorEntry& entry : entries) {
    const OrderedJson description = {{"dtype", safetensors_name(entry.dtype, entry.packed)},
                                     {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                                     {"data_offsets", {entry.bytes.begin, entry.bytes.end}}};
    text += fmt::format(",{}:{}", Json(entry.name).dump(), description.dump());
  }
  text += '}';
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), kHeaderAlignment)), ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, const std::vector<TensorSpec>& tensors) {
  std::vector<TensorSpec> ordered = tensors;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
  std::vector<TensorEntry> entries;
  int64_t offset = 0;
  for (const TensorSpec& tensor : ordered) {
    require<IoError>(!tensor.name.empty() && tensor.name != "__metadata__", "{}: a tensor cannot be named \"{}\"",
                     path.string(), tensor.name);
    require<IoError>(index_.emplace(tensor.name, entries.size()).second, "{}: tensor \"{}\" is declared twice",
                     path.string(), tensor.name);
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, {offset, offset + tensor.bytes()}, tensor.packed});
    offset += tensor.bytes();
  }
  std::string header;
  try {
    header = header_of(entries);
  } catch (const Json::exception&) {
    fail<IoError>("{}: a tensor's name is not valid UTF-8", path.string());
  }
  const auto length = static_cast<uint64_t>(header.size());
  data_begin_ = static_cast<int64_t>(sizeof(length) + header.size());
  file_.emplace(std::move(path), data_begin_ + offset);
  file_->write(0, std::as_bytes(std::span(&length, 1)));
  file_->write(sizeof(length), std::as_bytes(std::span(header)));
  for (TensorEntry& entry : entries) slots_.push_back({std::move(entry)});
}

void SafetensorsWriter::write(std::string_view name, Interval elements, const Tensor& source) {
  const auto found = index_.find(name);
  require<IoError>(found != index_.end(), "{}: tensor \"{}\" was not declared", file_->path().string(), name);
  Slot& slot = slots_[found->second];
  const TensorEntry& entry = slot.entry;
  require<ShapeError>(0 <= elements.begin && elements.begin <= elements.end && elements.end <= entry.shape.numel(),
                      "{}: elements [{}, {}) leave tensor \"{}\" {}", file_->path().string(), elements.begin,
                      elements.end, name, entry.shape);
  require<ShapeError>(source.numel() == elements.size(), "{}: {} does not fill elements [{}, {}) of tensor \"{}\"",
                      file_->path().string(), source, elements.begin, elements.end, name);
  require<IoError>(slot.written.add(elements), "{}: elements [{}, {}) of tensor \"{}\" are written twice",
                   file_->path().string(), elements.begin, elements.end, name);
  const int64_t to_size = size_of(entry.dtype), from_size = size_of(source.dtype());
  const int64_t offset = data_begin_ + entry.bytes.begin + elements.begin * to_size;
  if (source.dtype() == entry.dtype) {
    file_->write(offset, {source.raw(), static_cast<size_t>(source.bytes())});
    return;
  }
  std::vector<std::byte> block(static_cast<size_t>(std::min(kConvertBlock, elements.size()) * to_size));
  for (int64_t begin = 0; begin < elements.size(); begin += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, elements.size() - begin);
    convert_elements(source.dtype(), source.raw() + begin * from_size, entry.dtype, block.data(), count);
    file_->write(offset + begin * to_size, std::span(block).first(static_cast<size_t>(count * to_size)));
  }
}

void SafetensorsWriter::write(std::string_view name, const Tensor& source) {
  const auto found = index_.find(name);
  if (found != index_.end() && slots_[found->second].entry.shape != source.shape())
    fail<ShapeError>("{}: tensor \"{}\" was declared as {}, got {}", file_->path().string(), name,
                     slots_[found->second].entry.shape, source);
  write(name, {0, source.numel()}, source);
}

void SafetensorsWriter::finish() {
  for (const Slot& slot : slots_) {
    const int64_t numel = slot.entry.shape.numel();
    require<IoError>(slot.written.size() == numel, "{}: only {} of {} elements of tensor \"{}\" were written",
                     file_->path().string(), slot.written.size(), numel, slot.entry.name);
  }
  file_->commit();
}

void save_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter writer(path, specs);
  for (const auto& [name, tensor] : tensors) writer.write(name, tensor);
  writer.finish();
}

}  // namespace nought
