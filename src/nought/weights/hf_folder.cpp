#include "nought/weights/hf_folder.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>

#include <xxhash.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/io/files.h"
#include "nought/models/decoder.h"
#include "nought/models/names.h"
#include "nought/models/text_part.h"

namespace nought {

namespace {

/// Appends the ids that are not there yet.
void add_missing(const std::vector<int64_t>& more, std::vector<int64_t>& ids) {
  for (const int64_t id : more)
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

/// The ids of a key that holds one or a list of them.
std::vector<int64_t> ids_of(const OrderedJson& json, const char* key) {
  std::vector<int64_t> ids;
  const OrderedJson value = json.value(key, OrderedJson());
  for (const OrderedJson& id : value.is_array() ? value : OrderedJson::array({value}))
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  return ids;
}

/// The layer that a parameter's name tells; -1 if there is none.
int64_t layer_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  return at == std::string::npos ? -1 : std::strtoll(name.c_str() + at + kLayers.size(), nullptr, 10);
}

/// The settings in the folder `from`, with every token at which the model stops.
void write_generation_config(const ModelConfig& config, const std::filesystem::path& from,
                             const std::filesystem::path& to) {
  constexpr const char* kName = "generation_config.json";
  std::error_code ignored;
  OrderedJson json = OrderedJson::object();
  if (std::filesystem::is_directory(from, ignored) && std::filesystem::is_regular_file(from / kName, ignored)) {
    json = OrderedJson::parse(read_bytes(from / kName), nullptr, /*allow_exceptions=*/false);
    require<IoError>(json.is_object(), "{}: not a JSON object", (from / kName).string());
  }
  std::vector<int64_t> ends = config.eos_token_ids;
  add_missing(ids_of(json, "eos_token_id"), ends);
  if (!json.contains("bos_token_id") && config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (!ends.empty()) json["eos_token_id"] = ends;
  if (!json.empty()) write_text_atomically(to / kName, json.dump(2) + "\n");
}

}  // namespace

namespace {

using ShapesByName = std::map<std::string, Shape, std::less<>>;

ShapesByName shapes_by_name(const Model& model) {
  ShapesByName shapes;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      std::vector<std::string> names = multimodal_names(parameter.name);
      for (const std::string& each : alternative_names(parameter.name)) names.push_back(each);
      names.push_back(parameter.name);
      for (std::string& name : names) shapes.emplace(std::move(name), parameter.placement.global);
    }
  return shapes;
}

}  // namespace

WholeShapes whole_shapes(const Model& model) {
  // Nearly all folders hold whole tensors, of which nobody asks.
  return [&model, shapes = ShapesByName()](std::string_view name) mutable {
    if (shapes.empty()) shapes = shapes_by_name(model);
    const auto found = shapes.find(name);
    return found == shapes.end() ? std::nullopt : std::optional(found->second);
  };
}

HfWeights::HfWeights(const std::filesystem::path& folder, const Model& model) : files_(folder, whole_shapes(model)) {
  const std::optional<QuantizationConfig> quantization = QuantizationConfig::of_folder(folder);
  std::optional<PackedWeights> packed;
  if (quantization) packed.emplace(files_, *quantization);
  std::unordered_set<std::string> used;
  std::optional<DType> first;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.role == ParameterRole::adapter) continue;
      if (auto found = packed ? packed->find(parameter.name, parameter.placement.global) : std::nullopt) {
        used.insert(found->parts.begin(), found->parts.end());
        packed_.emplace(parameter.name, std::move(*found));
        continue;
      }
      check(parameter);
      const std::string& name = stored_.at(parameter.name).tensor;
      if (!first) first = files_.at(name).dtype;
      used.insert(name);
    }
  dtype_ = first.value_or(packed_.empty() ? DType::f32 : DType::bf16);
  std::vector<std::string> left;
  for (const TensorEntry& entry : files_.entries())
    if (!used.contains(entry.name) && !is_buffer_name(entry.name)) left.push_back(entry.name);
  carry(folder, left, quantization.has_value());
}

void HfWeights::carry(const std::filesystem::path& folder, const std::vector<std::string>& left, bool quantized) {
  if (left.empty()) return;
  // Without the keys that count such layers, those behind the last are another model's.
  const std::optional<std::string> config = bytes_if_there(folder / "config.json");
  const bool later = config && predicts_later_tokens(Json::parse(*config, nullptr, /*allow_exceptions=*/false));
  int64_t layers = later ? 0 : std::numeric_limits<int64_t>::max();
  for (const auto& [parameter, stored] : stored_)
    if (later) layers = std::max(layers, layer_of(parameter) + 1);
  std::vector<std::string> carried;
  for (const std::string& name : left)
    (!quantized && is_carried_name(name, layers) && !files_.at(name).packed ? carried : unused_).push_back(name);
  if (!carried.empty()) carried_.emplace(files_, folder, carried, stored_);
}

std::optional<StoredPlace> HfWeights::within_experts(const Parameter& parameter) const {
  const std::optional<JoinedExpert> part = joined_expert(parameter.name);
  if (!part) return std::nullopt;
  std::vector<std::string> names = multimodal_names(part->tensor);
  names.push_back(part->tensor);
  const auto found = std::ranges::find_if(names, [&](const std::string& name) { return files_.contains(name); });
  if (found == names.end()) return std::nullopt;
  const Shape& have = files_.at(*found).shape;
  const Shape& matrix = parameter.placement.global;
  const Shape wanted{have.rank() == 3 ? have[0] : 0, part->matrices * matrix[0], matrix[1]};
  require<IoError>(have == wanted && part->expert < have[0],
                   "{}: tensor {} has shape {}, config.json asks for {} in [experts, {}, {}]",
                   files_.path_of(*found).string(), *found, have, parameter.name, wanted[1], wanted[2]);
  return StoredPlace{*found, (part->expert * part->matrices + part->matrix) * matrix.numel()};
}

void HfWeights::check(const Parameter& parameter) {
  std::vector<std::string> others = multimodal_names(parameter.name);
  for (const std::string& each : alternative_names(parameter.name)) others.push_back(each);
  std::string name = parameter.name;
  for (const std::string& other : others)
    if (!files_.contains(name) && !other.empty() && files_.contains(other)) name = other;
  if (!files_.contains(name)) {
    if (const std::optional<StoredPlace> place = within_experts(parameter)) {
      stored_[parameter.name] = *place;
      return;
    }
  }
  const TensorEntry& entry = files_.at(name);
  const Shape& shape = parameter.placement.global;
  require<IoError>(entry.shape == shape,
                   "{}: tensor {} has shape {}, config.json asks for {}: it is of another model, or was edited",
                   files_.path_of(name).string(), name, entry.shape, shape);
  stored_[parameter.name] = {name};
}

void HfWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                     const Tensor& destination) const {
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  if (const auto packed = packed_.find(parameter.name); packed != packed_.end()) {
    packed->second.tensor.read(elements, destination);
    for (const std::string& part : packed->second.parts) files_.file_of(part).release(files_.at(part));
    return;
  }
  const StoredPlace& place = stored_.at(parameter.name);
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    files_.read(place.tensor, {place.first + interval.begin, place.first + interval.end}, values);
  });
}

StoredWeights::Storage HfWeights::storage_of(const Parameter& parameter) const {
  const auto packed = packed_.find(parameter.name);
  if (packed == packed_.end()) {
    const DType dtype = dtype_of(parameter);
    return {std::string(name_of(dtype)), parameter.placement.global.numel() * size_of(dtype)};
  }
  Storage storage{packed->second.format};
  for (const std::string& part : packed->second.parts) storage.bytes += files_.at(part).bytes.size();
  return storage;
}

std::optional<StoredFourBits> HfWeights::four_bits(const Parameter& parameter) const {
  const auto packed = packed_.find(parameter.name);
  return packed == packed_.end() ? std::nullopt : four_bits_of(packed->second.tensor);
}

std::optional<StoredBlocks> HfWeights::blocks(const Parameter& parameter) const {
  const auto packed = packed_.find(parameter.name);
  if (packed == packed_.end()) return std::nullopt;
  std::optional<StoredBlocks> stored = blocks_of(packed->second.tensor);
  if (!stored) return stored;
  stored->read = [this, read = stored->read, &parts = packed->second.parts](Interval elements, std::byte* to) {
    read(elements, to);
    for (const std::string& part : parts) files_.file_of(part).release(files_.at(part));
  };
  return stored;
}

std::string HfWeights::hash_of(const std::string& tensor) const {
  const TensorEntry& entry = files_.at(tensor);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  files_.visit_bytes(
      tensor, [&](std::span<const std::byte> bytes) { XXH3_64bits_update(state.get(), bytes.data(), bytes.size()); });
  return fmt::format("{} {} {:016x}\n", name_of(entry.dtype), entry.shape.str(), XXH3_64bits_digest(state.get()));
}

std::string HfWeights::content_hash() const {
  std::map<std::string, std::string> hashes;      // sorted by the names of parameters
  std::map<std::string, std::string> of_tensors;  // which several parameters may share
  for (const auto& [parameter, stored] : stored_) {
    std::string& hash = of_tensors[stored.tensor];
    if (hash.empty()) hash = hash_of(stored.tensor);
    hashes.emplace(parameter, fmt::format("{} {}", parameter, hash));
  }
  for (const auto& [parameter, packed] : packed_)
    for (const std::string& part : packed.parts) hashes[parameter] += fmt::format("{} {}", part, hash_of(part));
  std::string all;
  for (const auto& [parameter, hash] : hashes) all += hash;
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

std::vector<TensorSpec> weight_specs(const Model& model, const std::function<DType(const Parameter&)>& dtype_of) {
  std::vector<TensorSpec> specs;
  for (const auto& unit : model.units())
    for (const GlobalTensor& tensor : global_tensors(*unit))
      specs.push_back({tensor.first().name, dtype_of(tensor.first()), tensor.first().placement.global});
  return specs;
}

ModelConfig with_stop_ids(ModelConfig config, std::span<const int32_t> ends, const Tokenizer& tokenizer) {
  std::vector<int64_t> ids(ends.begin(), ends.end());
  add_missing(config.eos_token_ids, ids);
  if (ids.empty() && tokenizer.has_separator()) ids.push_back(tokenizer.separator());
  config.eos_token_ids = std::move(ids);
  return config;
}

void export_companions(const ModelConfig& config, DType dtype, const TokenizerExport& tokenizer,
                       const std::filesystem::path& folder, const CarriedTensors* carried) {
  const OrderedJson json = carried ? whole_config(config, dtype) : config.to_hf_json(dtype);
  write_text_atomically(folder / "config.json", json.dump(2) + "\n");
  if (carried) carried->copy_companions(folder);
  export_tokenizer(tokenizer, folder);
  write_generation_config(config, tokenizer.tokenizer, folder);
}

void export_hf_folder(ShardedModel& model, const ModelConfig& config, const TokenizerExport& tokenizer,
                      const std::filesystem::path& folder, int64_t max_shard_bytes,
                      const std::filesystem::path& origin) {
  const DType dtype = model.options().dtype;
  std::optional<HfFolderWriter> writer;
  std::unique_ptr<HfWeights> started;
  const CarriedTensors* carried = nullptr;
  if (model.mesh().world().rank() == 0) {
    if (!config.whole.json.empty() && !origin.empty() && holds_weights(origin))
      started = std::make_unique<HfWeights>(origin, Decoder(ModelConfig::from_folder(origin)));
    carried = started ? started->carried() : nullptr;
    std::vector<TensorSpec> specs =
        weight_specs(model.model(), [&](const Parameter& each) { return each.dtype.value_or(dtype); });
    if (carried) carried->add_to(specs);
    writer.emplace(folder, specs, max_shard_bytes);
  }
  for (size_t i = 0; i < model.model().units().size(); ++i)
    model.with_parameters(i, [&](const Parameter& parameter, const Tensor& values) {
      if (!writer) return;
      const StoredPlace place = carried ? carried->place_of(parameter.name) : StoredPlace{parameter.name};
      writer->write(place.tensor, {place.first, place.first + values.numel()}, model.context().on_host(values));
    });
  if (writer) {
    if (carried) carried->write(*writer, *model.context().memory);
    writer->finish();
    export_companions(config, dtype, tokenizer, folder, carried);
  }
  model.mesh().world().barrier().wait();  // when anyone returns, the folder is there
}

}  // namespace nought
