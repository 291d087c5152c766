#include "nought/weights/gguf_adapter.h"

#include <map>

#include "nought/models/gguf_metadata.h"
#include "nought/models/gguf_places.h"
#include "nought/models/names.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// A layer in the file.
struct Layer {
  const LowRank* of = nullptr;
  const Parameter *a = nullptr, *b = nullptr;
  GgufPlace place = {};  // where the rows of B lie
};

void check(const ModelConfig& config) {
  const ModelAdapter& adapter = config.adapter;
  constexpr const char* kWayOut = "a GGUF adapter has products of low rank alone; --merge writes the model with it";
  require<ConfigError>(adapter.saved.empty(), "the adapter trains {} as a whole: {}",
                       adapter.saved.empty() ? "" : adapter.saved.front(), kWayOut);
  require<ConfigError>(adapter.tokens.empty(), "the adapter replaces rows of tokens (trainable_token_indices): {}",
                       kWayOut);
  for (const auto& [name, of] : adapter.layers)
    require<ConfigError>(!of.decomposed && !of.bias && !of.of_experts, "{}: {} of the adapter: {}", name,
                         of.decomposed ? "magnitudes (use_dora)"
                         : of.bias     ? "a bias of B (lora_bias)"
                                       : "experts (target_parameters)",
                         kWayOut);
  const std::string head = WeightNames::of(config).head;
  require<ConfigError>(
      !config.tie_word_embeddings || adapter.find(head) == nullptr,
      "{} is tied to the embedding, and llama.cpp adapts no tied head: --merge writes the model with it", head);
}

std::vector<Layer> layers_of(const ModelSource& source, std::vector<GgufTensor>& tensors, GgufType type) {
  std::map<std::string, const Parameter*> parameters;
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) parameters[parameter.name] = &parameter;
  const ModelConfig& config = source.config();
  const std::string table = WeightNames::of(config).token_embedding;
  const GgufPlaces places(config);
  std::vector<Layer> layers;
  for (const auto& entry : config.adapter.layers) {
    const std::string& name = entry.first;
    const bool is_table = name == table;
    const auto factor = [&](char which) {
      return parameters.at(is_table ? embedding_factor_name(name, which) : low_rank_name(name, which));
    };
    const auto weight = parameters.find(name + std::string(kWeightOfLayer));
    require<ConfigError>(weight != parameters.end(), "{}: GGUF has no name for what the adapter adds to", name);
    const Parameter *a = factor('A'), *b = factor('B');
    layers.push_back({&entry.second, a, b, places.of_outputs(*weight->second, b->placement.global[-1])});
    const std::string& tensor = layers.back().place.tensor();
    tensors.push_back({tensor + ".lora_a", type, a->placement.global});
    tensors.push_back({tensor + ".lora_b", type, b->placement.global});
  }
  return layers;
}

void write_rows(const GgufPlace& place, const Tensor& b, GgufWriter& writer, size_t tensor) {
  if (place.in_order()) return writer.write(tensor, {0, b.numel()}, DType::f32, b.raw());
  std::vector<float> moved(static_cast<size_t>(b.numel()));
  const std::span<const float> values = b.span<float>();
  for (const GgufPart& part : place.parts)
    for (const GgufLine& line : part.lines())
      for (int64_t sheet = 0; sheet < b.numel() / place.sheet; ++sheet)
        for (int64_t i = 0; i < line.count; ++i)
          moved[static_cast<size_t>(sheet * part.step + line.to + i)] =
              values[static_cast<size_t>(sheet * place.sheet + line.from + i * line.stride)];
  writer.write(tensor, {0, b.numel()}, DType::f32, reinterpret_cast<const std::byte*>(moved.data()));
}

}  // namespace

std::vector<GgufTensor> write_gguf_adapter(const ModelSource& source, const fs::path& file, GgufType type,
                                           Memory& memory) {
  const ModelConfig& config = source.config();
  check(config);
  require<ConfigError>(weight_format(type).block == 1, "adapters are not quantized: --outtype f32, f16 or bf16");
  std::vector<GgufTensor> tensors;
  const std::vector<Layer> layers = layers_of(source, tensors, type);
  const auto alpha_of = [](const Layer& layer) { return layer.of->scale * static_cast<double>(layer.of->rank); };
  // llama.cpp takes an alpha of 0 for none.
  const double alpha = alpha_of(layers.front()) == 0 ? 1 : alpha_of(layers.front());
  std::vector<std::string> notes;
  GgufMetadata metadata;
  for (auto& [key, value] : gguf_metadata(config, 0, "", notes))
    if (key == "general.architecture") metadata.emplace_back(key, value);
  metadata.emplace_back("general.type", std::string("adapter"));
  metadata.emplace_back("adapter.type", std::string("lora"));
  metadata.emplace_back("adapter.lora.alpha", static_cast<float>(alpha));
  GgufWriter writer(file, metadata, tensors);
  const auto read = [&](const Parameter& parameter) {
    Tensor values = Tensor::empty(memory, parameter.placement.global, DType::f32, Category::workspace);
    source.weights().fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
    return values;
  };
  size_t next = 0;
  for (const Layer& layer : layers) {
    const Tensor a = read(*layer.a), b = read(*layer.b);
    writer.write(next++, {0, a.numel()}, DType::f32, a.raw());
    const auto factor = static_cast<float>(alpha_of(layer) / alpha * double{layer.place.factor});
    for (float& value : b.span<float>()) value *= factor;
    write_rows(layer.place, b, writer, next++);
  }
  writer.finish();
  return tensors;
}

}  // namespace nought
