#include "nought/models/gguf_model.h"

#include <algorithm>

#include "nought/io/convert.h"
#include "nought/models/gguf_metadata.h"

namespace nought {

GgufModelWriter::GgufModelWriter(std::filesystem::path path, const Decoder& model, const GgufMixture& types,
                                 const std::string& name, const GgufMetadata& tokenizer)
    : config_(model.config()) {
  GgufMetadata metadata = gguf_metadata(config_, types.number, name, notes_);
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  place_parameters(model, types);
  add_rope_factors();
  writer_.emplace(std::move(path), metadata, std::move(tensors_));
}

void GgufModelWriter::place_parameters(const Decoder& model, const GgufMixture& types) {
  const GgufPlaces places(config_);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      Placed placed{places.of(parameter), {}};
      for (const GgufPart& part : placed.place.parts) {
        const auto [entry, fresh] = tensor_of_.emplace(part.tensor, tensors_.size());
        if (fresh) tensors_.push_back({part.tensor, type_of(parameter, part, types), part.shape});
        placed.tensors.push_back(entry->second);
      }
      places_.emplace(parameter.name, std::move(placed));
    }
}

GgufType GgufModelWriter::type_of(const Parameter& parameter, const GgufPart& part, const GgufMixture& types) const {
  using enum ParameterRole;
  const bool exact = parameter.placement.global.rank() < 2 || parameter.role == router || parameter.role == bias ||
                     parameter.role == filter || parameter.role == choice_bias ||
                     part.tensor.starts_with("position_embd.");
  return exact ? GgufType::f32 : types.type_of(part.tensor, part.shape, config_);
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

void GgufModelWriter::write_in_order(const Placed& placed, Interval elements, const Tensor& source) {
  const GgufPlace& place = placed.place;
  const int64_t first = place.parts.front().to + elements.begin;
  const Interval target{first, first + elements.size()};
  if (place.offset == 0 && place.factor == 1)
    return writer_->write(placed.tensors.front(), target, source.dtype(), source.raw());
  std::vector<float> values(static_cast<size_t>(elements.size()));
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  convert_elements(source.dtype(), source.raw(), DType::f32, bytes, elements.size());
  for (float& value : values) value = place.stored(value);
  writer_->write(placed.tensors.front(), target, DType::f32, bytes);
}

void GgufModelWriter::write_sheet(const Placed& placed, int64_t sheet, const std::vector<float>& values) {
  for (size_t i = 0; i < placed.place.parts.size(); ++i) {
    const GgufPart& part = placed.place.parts[i];
    const int64_t shift = sheet * part.step;
    std::vector<float> run;
    int64_t begin = 0;
    const auto flush = [&] {
      if (run.empty()) return;
      writer_->write(placed.tensors[i], {begin, begin + std::ssize(run)}, DType::f32,
                     reinterpret_cast<const std::byte*>(run.data()));
      run.clear();
    };
    for (const GgufLine& line : part.lines()) {
      if (begin + std::ssize(run) != line.to + shift) flush();
      if (run.empty()) begin = line.to + shift;
      for (int64_t j = 0; j < line.count; ++j)
        run.push_back(placed.place.stored(values[static_cast<size_t>(line.from + j * line.stride)]));
    }
    flush();
  }
}

void GgufModelWriter::write(std::string_view name, Interval elements, const Tensor& source) {
  const auto found = places_.find(name);
  require<IoError>(found != places_.end(), "tensor \"{}\" has no place in the GGUF file", name);
  require<ShapeError>(source.numel() == elements.size(), "{} does not fill elements [{}, {}) of \"{}\"", source,
                      elements.begin, elements.end, name);
  const Placed& placed = found->second;
  if (placed.place.in_order()) return write_in_order(placed, elements, source);
  const int64_t size = placed.place.sheet;
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t sheet = begin / size, end = std::min(elements.end, (sheet + 1) * size);
    const std::pair key{found->first, sheet};
    Held& held = held_[key];
    held.values.resize(static_cast<size_t>(size));
    convert_elements(source.dtype(), source.raw() + (begin - elements.begin) * size_of(source.dtype()), DType::f32,
                     reinterpret_cast<std::byte*>(held.values.data() + begin % size), end - begin);
    held.filled += end - begin;
    if (held.filled >= size) {
      write_sheet(placed, sheet, held.values);
      held_.erase(key);
    }
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
