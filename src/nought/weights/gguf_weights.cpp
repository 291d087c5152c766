#include "nought/weights/gguf_weights.h"

#include <map>
#include <set>

#include <xxhash.h>

#include "nought/base/text.h"
#include "nought/io/strict_json.h"
#include "nought/models/gguf_places.h"

namespace nought {

namespace {

DType dtype_of_type(GgufType type) {
  return type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16;
}

/// Factors of rotary positions, which the config has.
bool is_rope_factor(const std::string& name) {
  return name.starts_with("rope_freqs") || name.starts_with("rope_factors");
}

}  // namespace

GgufWeights::GgufWeights(const std::filesystem::path& path, const ModelConfig& config, const Model& model)
    : file_(path) {
  const GgufPlaces places(config);
  std::set<std::string> used;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.role == ParameterRole::adapter) continue;
      const GgufPlace place = places.of(parameter);
      Held held = open(parameter, place);
      if (held_.empty()) dtype_ = dtype_of_type(held.entry->type);
      used.insert(place.tensor);
      held_.emplace(parameter.name, std::move(held));
    }
  for (const GgufEntry& entry : file_.entries())
    if (!used.contains(entry.name) && !is_rope_factor(entry.name)) unused_.push_back(entry.name);
}

GgufWeights::Held GgufWeights::open(const Parameter& parameter, const GgufPlace& place) const {
  const GgufEntry* entry = file_.find(place.tensor);
  const std::string path = file_.path().string();
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const GgufEntry& each : file_.entries()) names.push_back(each.name);
    fail<IoError>("{}: no tensor \"{}\", which holds {}{}", path, place.tensor, parameter.name,
                  did_you_mean(place.tensor, names));
  }
  require<IoError>(entry->shape == place.shape, "{}: tensor \"{}\" has shape {}, the metadata ask for {}", path,
                   place.tensor, entry->shape, place.shape);
  const WeightFormat& format = weight_format(entry->type);
  const Shape& shape = parameter.placement.global;
  const bool flat = shape.rank() < 2;
  require<IoError>(!flat || format.block == 1, "{}: tensor \"{}\" has type {}, a vector of {} is not read", path,
                   place.tensor, format.name, format.name);
  Held held{.entry = entry, .tensor = {}};
  PackedTensor& tensor = held.tensor;
  tensor.shape = shape;
  tensor.offset = place.offset, tensor.factor = place.factor;
  tensor.transposed = place.transposed;
  PackedMatrix& matrix = tensor.matrix;
  matrix.format = &format;
  matrix.codes = file_.raw(*entry);
  const bool rows_of_one = flat && !place.keeps_order();
  matrix.columns = flat ? (rows_of_one ? 1 : shape.numel()) : entry->shape[-1];
  matrix.rows = matrix.columns == 0 ? 0 : entry->numel() / matrix.columns;
  tensor.first_row = matrix.columns == 0 ? 0 : place.first / matrix.columns;
  if (!place.keeps_order())
    for (int64_t row = 0; row < matrix.rows; ++row) tensor.rows.push_back(static_cast<int32_t>(place.target_row(row)));
  return held;
}

void GgufWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                       const Tensor& destination) const {
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  const Held& held = held_.at(parameter.name);
  held.tensor.read(elements, destination);
  file_.release(*held.entry);
}

DType GgufWeights::dtype_of(const Parameter& parameter) const {
  const auto held = held_.find(parameter.name);  // an adapter's, or a head that it has beside the table, is none
  return held == held_.end() ? dtype_ : dtype_of_type(held->second.entry->type);
}

bool GgufWeights::decodes(const Parameter& parameter) const {
  const auto held = held_.find(parameter.name);  // an adapter's is none of the file
  return held != held_.end() && weight_format(held->second.entry->type).block > 1;
}

StoredWeights::Storage GgufWeights::storage_of(const Parameter& parameter) const {
  const Held& held = held_.at(parameter.name);
  const WeightFormat& format = weight_format(held.entry->type);
  return {std::string(format.name), parameter.placement.global.numel() / format.block * format.block_bytes};
}

std::string GgufWeights::content_hash() const {
  std::map<std::string, std::string> hashes;  // sorted
  for (const auto& [name, held] : held_) {
    const auto bytes = file_.raw(*held.entry);
    hashes.emplace(name, fmt::format("{} {} {} {:016x}\n", name, name_of(held.entry->type), held.entry->shape,
                                     XXH3_64bits(bytes.data(), bytes.size())));
    file_.release(*held.entry);
  }
  std::string all;
  for (const auto& [name, hash] : hashes) all += hash;
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

}  // namespace nought
