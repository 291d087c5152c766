#include "nought/models/gguf_model.h"

#include "nought/io/convert.h"
#include "nought/models/gguf_metadata.h"

namespace nought {

GgufModelWriter::GgufModelWriter(std::filesystem::path path, const Decoder& model, GgufType type,
                                 const std::string& name, const GgufMetadata& tokenizer)
    : config_(model.config()) {
  GgufMetadata metadata = gguf_metadata(config_, type, name, notes_);
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  place_parameters(model, type);
  add_rope_factors();
  writer_.emplace(std::move(path), metadata, std::move(tensors_));
}

void GgufModelWriter::place_parameters(const Decoder& model, GgufType type) {
  const GgufPlaces places(config_);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const GgufPlace place = places.of(parameter);
      const auto [entry, fresh] = tensor_of_.emplace(place.tensor, tensors_.size());
      if (fresh) tensors_.push_back({place.tensor, type_of(parameter, place, type), place.shape});
      places_.emplace(parameter.name, Placed{place, entry->second});
    }
}

GgufType GgufModelWriter::type_of(const Parameter& parameter, const GgufPlace& place, GgufType type) {
  const bool exact = parameter.placement.global.rank() < 2 || parameter.role == ParameterRole::router ||
                     place.tensor.starts_with("position_embd.");
  if (exact) return GgufType::f32;
  return type == GgufType::q8_0 && place.shape[-1] % kQ8Block != 0 ? GgufType::f16 : type;
}

void GgufModelWriter::add_rope_factors() {
  const auto add = [&](const char* name, const std::vector<double>& factors) {
    rope_factors_.emplace_back(tensors_.size(), std::vector<float>(factors.begin(), factors.end()));
    tensors_.push_back({name, GgufType::f32, {static_cast<int64_t>(factors.size())}});
  };
  const RopeOptions& rope = config_.rope;
  if (rope.kind == RopeKind::longrope) {
    add("rope_factors_long.weight", rope.long_factors);
    add("rope_factors_short.weight", rope.short_factors);
  }
  if (rope.kind != RopeKind::llama3) return;
  RopeOptions plain = rope;
  plain.kind = RopeKind::plain;
  std::vector<double> factors = plain.frequencies(0);
  const std::vector<double> bent = rope.frequencies(0);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= bent[i];
  add("rope_freqs.weight", factors);
}

void GgufModelWriter::write_transposed(const std::string& name, size_t tensor, Interval elements,
                                       const Tensor& source) {
  const Shape& target = writer_->tensors()[tensor].shape;
  Held& held = held_[name];
  held.values.resize(static_cast<size_t>(target.numel()));
  convert_elements(source.dtype(), source.raw(), DType::f32,
                   reinterpret_cast<std::byte*>(held.values.data() + elements.begin), elements.size());
  held.filled += elements.size();
  if (held.filled < target.numel()) return;
  const int64_t rows = target[0], columns = target[1];
  std::vector<float> turned(held.values.size());
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j < rows; ++j)
      turned[static_cast<size_t>(j * columns + i)] = held.values[static_cast<size_t>(i * rows + j)];
  writer_->write(tensor, {0, target.numel()}, DType::f32, reinterpret_cast<const std::byte*>(turned.data()));
  held_.erase(name);
}

void GgufModelWriter::write(std::string_view name, Interval elements, const Tensor& source) {
  const auto found = places_.find(name);
  require<IoError>(found != places_.end(), "tensor \"{}\" has no place in the GGUF file", name);
  require<ShapeError>(source.numel() == elements.size(), "{} does not fill elements [{}, {}) of \"{}\"", source,
                      elements.begin, elements.end, name);
  const auto& [place, tensor] = found->second;
  if (place.transposed) return write_transposed(found->first, tensor, elements, source);
  const auto put = [&, &place = place, &tensor = tensor](int64_t first, int64_t begin, int64_t count) {
    const std::byte* from = source.raw() + (begin - elements.begin) * size_of(source.dtype());
    if (place.offset == 0 && place.factor == 1) {
      writer_->write(tensor, {first, first + count}, source.dtype(), from);
      return;
    }
    std::vector<float> values(static_cast<size_t>(count));
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    convert_elements(source.dtype(), from, DType::f32, bytes, count);
    for (float& value : values) value = (value + place.offset) * place.factor;
    writer_->write(tensor, {first, first + count}, DType::f32, bytes);
  };
  if (place.keeps_order()) return put(place.first + elements.begin, elements.begin, elements.size());
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t row = begin / place.row, end = std::min(elements.end, (row + 1) * place.row);
    put(place.first + place.target_row(row) * place.row + begin % place.row, begin, end - begin);
    begin = end;
  }
}

void GgufModelWriter::finish() {
  for (const auto& [tensor, factors] : rope_factors_)
    writer_->write(tensor, {0, static_cast<int64_t>(factors.size())}, DType::f32,
                   reinterpret_cast<const std::byte*>(factors.data()));
  writer_->finish();
}

}  // namespace nought
