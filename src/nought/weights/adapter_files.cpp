#include "nought/weights/adapter_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "nought/base/json.h"
#include "nought/io/convert.h"
#include "nought/io/files.h"
#include "nought/io/hub_cache.h"
#include "nought/io/strict_json.h"
#include "nought/models/adapter_experts.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxDepth = 8;  // the file is anybody's

/// One of the two factors of a layer, or of an embedding.
struct Factor {
  std::string layer;
  bool is_a = false, of_table = false;

  /// Its rank is an extent of this dimension.
  int rank_dim() const { return is_a && !of_table ? 0 : 1; }
};

/// The layer whose magnitudes, or bias of B, it has; "" for another parameter.
std::string_view layer_of_vector(const Parameter& parameter) {
  if (parameter.role != ParameterRole::adapter) return "";
  for (const std::string_view kind : {kMagnitudeOfLayer, kBiasOfB})
    if (const std::string_view layer = layer_of(parameter.name, kind); !layer.empty())
      return layer.substr(kAdapterPrefix.size());
  return "";
}

/// The layer some of whose rows it replaces; "" for another parameter.
std::string_view layer_of_token_rows(const Parameter& parameter) {
  const std::string_view layer = layer_of(parameter.name, kTokenRowsOfLayer);
  return layer.empty() ? layer : layer.substr(kAdapterPrefix.size());
}

/// Nothing for another parameter.
std::optional<Factor> factor_of(const Parameter& parameter) {
  if (parameter.role != ParameterRole::adapter || !layer_of_vector(parameter).empty() ||
      !layer_of_token_rows(parameter).empty())
    return {};
  std::string_view name = parameter.name;
  name.remove_prefix(kAdapterPrefix.size());
  constexpr std::string_view kTable = ".lora_embedding_", kLinear = ".lora_";
  const size_t table = name.rfind(kTable), linear = name.rfind(kLinear);
  const bool of_table = table != std::string_view::npos;
  const size_t end = of_table ? table : linear;
  return Factor{std::string(name.substr(0, end)), name[end + (of_table ? kTable : kLinear).size()] == 'A', of_table};
}

Shape with_extent(const Shape& shape, int dim, int64_t extent) {
  return dim == 0 ? Shape{extent, shape[1]} : Shape{shape[0], extent};
}

/// A of an embedding is [rank, vocabulary] in files, and [vocabulary, rank] here.
bool is_turned(const Parameter& parameter) {
  const std::optional<Factor> factor = factor_of(parameter);
  return factor && factor->is_a && factor->of_table;
}

/// A or B of all experts: [experts, rank, in], [experts, out, rank]. Files have [experts * rank, in], and of B
/// [out, rank * experts], where the expert changes first.
bool is_of_experts(const Parameter& parameter) {
  return parameter.role == ParameterRole::adapter && parameter.placement.global.rank() == 3;
}

Shape shape_in_file(const Parameter& parameter, const Shape& shape) {
  if (is_of_experts(parameter))
    return factor_of(parameter)->is_a ? Shape{shape[0] * shape[1], shape[2]} : Shape{shape[1], shape[2] * shape[0]};
  return is_turned(parameter) ? Shape{shape[1], shape[0]} : shape;
}

/// The tensors of an adapter and their shapes, by the parameters that a model has of it.
std::map<std::string, Shape> expected_tensors(const ModelAdapter& adapter, const Model& model) {
  std::map<std::string, Shape> expected;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      Shape shape = parameter.placement.global;
      if (const auto factor = factor_of(parameter)) {
        const LowRank* of = adapter.find(factor->layer);
        if (of == nullptr) continue;
        if (!of->of_experts) shape = with_extent(shape, factor->rank_dim(), of->rank);
      } else if (const LowRank* of = adapter.find(layer_of_vector(parameter))) {
        if (parameter.name.ends_with(kBiasOfB) ? !of->bias : !of->decomposed) continue;
      } else if (!adapter.saves(parameter.name) && !adapter.tokens.contains(layer_of_token_rows(parameter))) {
        continue;
      }
      expected[adapter_tensor_name(parameter, adapter)] = shape_in_file(parameter, shape);
    }
  return expected;
}

/// The name of the copy of a table that its adapter's file has too: an unchanged one of what it adds to, or the head
/// that is the table; "" for others.
std::string table_copy_name(const Parameter& parameter, const ModelAdapter& adapter) {
  if (parameter.role != ParameterRole::embedding && parameter.role != ParameterRole::head) return "";
  if (!adapter.tied_head.empty() && adapter.saves(parameter.name))
    return fmt::format("{}{}{}", kAdapterPrefix, adapter.tied_head, kWeightOfLayer);
  const std::string_view layer = layer_of(parameter.name, kWeightOfLayer);
  return adapter.find(layer) == nullptr ? "" : fmt::format("{}{}.base_layer.weight", kAdapterPrefix, layer);
}

bool all_finite(const Tensor& values) {
  return std::ranges::all_of(values.span<float>(), [](float value) { return std::isfinite(value); });
}

/// The first of some names, and how many more there are.
std::string first_of(const std::vector<std::string>& names) {
  return names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1);
}

}  // namespace

bool holds_adapter(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kAdapterConfigFile, ignored);
}

AdapterConfig read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigFile;
  const std::string text = read_bytes(path);
  parse_strictly(path.string(), "it", text, kMaxDepth);
  return AdapterConfig::from_json(OrderedJson::parse(text), Origins(path.string()));
}

std::optional<fs::path> present_base_of_adapter(const fs::path& folder) {
  const std::string base = read_adapter_config(folder).base;
  std::error_code ignored;
  if (base.empty()) return {};
  if (fs::path beside = (folder / base).lexically_normal(); fs::is_directory(beside, ignored)) return beside;
  if (fs::is_directory(base, ignored)) return base;
  return hub_snapshot(base);
}

fs::path base_of_adapter(const fs::path& folder) {
  const std::string base = read_adapter_config(folder).base;
  require<ConfigError>(!base.empty(),
                       "{}: does not say what it was trained on (base_model_name_or_path is null): name that model by "
                       "--base",
                       (folder / kAdapterConfigFile).string());
  const std::optional<fs::path> found = present_base_of_adapter(folder);
  require<IoError>(found.has_value(), "{}: was trained on {}, which is not there: name that model by --base",
                   folder.string(), excerpt(base));
  return *found;
}

AdapterUse parse_adapter_use(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) return {text};
  double scale = 0;
  const char *begin = text.data() + equals + 1, *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, scale);
  if (begin == end || error != std::errc() || stop != end) return {text};
  require<ConfigError>(std::isfinite(scale), "--adapter {}: expected a finite scale", text);
  return {text.substr(0, equals), scale};
}

ModelAdapter combined_adapter(const std::vector<AdapterUse>& adapters, const ModelConfig& config) {
  ModelAdapter all;
  for (const AdapterUse& each : adapters) {
    const std::string place = (each.folder / kAdapterConfigFile).string();
    ModelAdapter one = resolve_adapter(read_adapter_config(each.folder), config, place);
    if (adapters.size() == 1) {
      for (auto& [name, of] : one.layers) of.scale *= each.scale;
      return one;
    }
    require<ConfigError>(one.saved.empty(), "{}: an adapter with modules_to_save does not add up with others", place);
    require<ConfigError>(one.has_products_alone(),
                         "{}: an adapter with use_dora, lora_bias, target_parameters or trainable_token_indices does "
                         "not add up with others: "
                         "merge it first",
                         place);
    for (const auto& [name, of] : one.layers) all.layers[name].rank += of.rank;
  }
  return all;
}

std::string adapter_tensor_name(const Parameter& parameter, const ModelAdapter& adapter) {
  if (is_of_experts(parameter)) {
    // The module of experts has the names of downs, and what is below it those of gates and ups.
    const Factor factor = *factor_of(parameter);
    const size_t end = factor.layer.rfind('.');
    const std::string module = factor.layer.substr(0, end), down = module + std::string(kDownOfExperts);
    const bool below = factor.layer != down && adapter.find(down) != nullptr;
    return low_rank_name(module + (below ? ".base_layer" : ""), factor.is_a ? 'A' : 'B');
  }
  if (parameter.role == ParameterRole::adapter) return parameter.name;
  if (const std::string_view layer = layer_of(parameter.name, kBiasOfLayer); adapter.find(layer) != nullptr)
    return fmt::format("{}{}.base_layer{}", kAdapterPrefix, layer, kBiasOfLayer);
  return std::string(kAdapterPrefix).append(parameter.name);
}

Tensor as_in_file(const Parameter& parameter, const Tensor& values, Memory& memory) {
  if (is_of_experts(parameter)) {
    const Shape file = shape_in_file(parameter, values.shape());
    if (factor_of(parameter)->is_a) return values.reshape(file);
    return transposed(values.reshape({values.dim(0), values.numel() / values.dim(0)}), memory).reshape(file);
  }
  return is_turned(parameter) ? transposed(values, memory) : values;
}

std::vector<TensorSpec> adapter_specs(const Model& model, const ModelAdapter& adapter, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const Shape& shape = parameter.placement.global;
      if (parameter.trainable)
        specs.push_back({adapter_tensor_name(parameter, adapter), dtype, shape_in_file(parameter, shape)});
      if (const std::string copy = table_copy_name(parameter, adapter); !copy.empty())
        specs.push_back({copy, dtype, shape});
    }
  std::ranges::sort(specs, {}, &TensorSpec::name);
  return specs;
}

void write_adapter_tensor(const Parameter& parameter, const Tensor& values, const ModelAdapter& adapter,
                          SafetensorsWriter& writer, Memory& memory) {
  if (parameter.trainable) writer.write(adapter_tensor_name(parameter, adapter), as_in_file(parameter, values, memory));
  if (const std::string copy = table_copy_name(parameter, adapter); !copy.empty()) writer.write(copy, values);
}

AdapterWeights::AdapterWeights(const std::vector<AdapterUse>& adapters, const Model& model, const ModelConfig& config,
                               const StateSource& base)
    : base_(base), memory_(Memory::create()) {
  for (const AdapterUse& each : adapters) {
    std::error_code ignored;
    const fs::path file = each.folder / kAdapterWeightsFile;
    require<IoError>(fs::exists(file, ignored), "{}: holds no {}", each.folder.string(), kAdapterWeightsFile);
    adapters_.push_back({SafetensorsFile(file), combined_adapter({{each.folder}}, config), each.scale});
    check(adapters_.back(), model);
  }
}

void AdapterWeights::check(const One& one, const Model& model) const {
  const std::string path = one.file.path().string();
  const std::map<std::string, Shape> expected = expected_tensors(one.adapter, model);
  std::vector<std::string> missing, unknown;
  for (const auto& [name, shape] : expected)
    if (one.file.find(name) == nullptr) missing.push_back(name);
  std::set<std::string> copies;  // unchanged ones of the model's
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) copies.insert(table_copy_name(parameter, one.adapter));
  for (const std::string& name : one.file.names())
    if (!expected.contains(name) && !copies.contains(name)) unknown.push_back(excerpt(name));
  require<IoError>(missing.empty(), "{}: lacks {}, which {} asks for: is it of this model?", path,
                   missing.empty() ? "" : first_of(missing), kAdapterConfigFile);
  require<IoError>(unknown.empty(), "{}: {} belongs to no layer that {} chooses", path,
                   unknown.empty() ? "" : first_of(unknown), kAdapterConfigFile);
  for (const auto& [name, shape] : expected) {
    require<IoError>(one.file.at(name).shape == shape, "{}: {} has shape {}, {} and the model ask for {}", path, name,
                     one.file.at(name).shape, kAdapterConfigFile, shape);
    const Tensor values = Tensor::empty(*memory_, shape, DType::f32, Category::workspace);
    one.file.read(name, {0, shape.numel()}, values);
    require<IoError>(all_finite(values), "{}: {} holds values that are not finite", path, name);
  }
}

Tensor AdapterWeights::read(const One& one, const Parameter& parameter, const Shape& shape) const {
  const Shape stored = shape_in_file(parameter, shape);
  const Tensor values = Tensor::empty(*memory_, stored, DType::f32, Category::workspace);
  one.file.read(adapter_tensor_name(parameter, one.adapter), {0, stored.numel()}, values);
  if (!is_of_experts(parameter)) return as_in_file(parameter, values, *memory_);
  if (factor_of(parameter)->is_a) return values.reshape(shape);
  return transposed(values.reshape({values.numel() / shape[0], shape[0]}), *memory_).reshape(shape);
}

Tensor AdapterWeights::combined(const Parameter& parameter) const {
  const Factor factor = *factor_of(parameter);
  const Shape& shape = parameter.placement.global;
  if (adapters_.size() == 1) return read(adapters_[0], parameter, shape);
  const bool by_rows = factor.rank_dim() == 0;
  const Tensor all = Tensor::empty(*memory_, shape, DType::f32, Category::workspace);
  int64_t first = 0;  // row or column
  for (const One& one : adapters_) {
    const LowRank* of = one.adapter.find(factor.layer);
    if (of == nullptr) continue;
    const Shape own = with_extent(shape, factor.rank_dim(), of->rank);
    const Tensor values = read(one, parameter, own);
    const auto scale = static_cast<float>(factor.is_a ? 1 : one.scale * of->scale);
    for (int64_t row = 0; row < own[0]; ++row)
      for (int64_t column = 0; column < own[1]; ++column)
        all.data<float>()[by_rows ? (first + row) * shape[1] + column : row * shape[1] + first + column] =
            scale * values.data<float>()[row * own[1] + column];
    first += of->rank;
  }
  return all;
}

void AdapterWeights::fill_combined(const Parameter& parameter, Interval elements, const Tensor& destination) const {
  const Tensor part = combined(parameter).flat(elements.begin, elements.end);
  convert_elements(part.dtype(), part.raw(), destination.dtype(), destination.raw(), part.numel());
}

void AdapterWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                          const Tensor& destination) const {
  if (parameter.role != ParameterRole::adapter && !saves(parameter))
    return base_.fill(kind, parameter, elements, destination);
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    if (adapters_.size() > 1 || is_turned(parameter) || is_of_experts(parameter))
      return fill_combined(parameter, interval, values);
    adapters_[0].file.read(adapter_tensor_name(parameter, adapters_[0].adapter), interval, values);
  });
}

}  // namespace nought
