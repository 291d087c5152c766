// Readers of adapters, which need nothing beyond the folder weights.
#include <cmath>

#include "memory_file.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "targets.h"

#include "nought/base/json.h"
#include "nought/io/strict_json.h"
#include "nought/models/adapter_modules.h"
#include "nought/models/decoder.h"
#include "nought/weights/adapter_files.h"

namespace nought::fuzz {

void read_adapter_config(std::span<const std::byte> bytes) {
  accept_or_refuse([&] {
    parse_strictly("A", "it", text_of(bytes), 8);
    const Origins origins("A");
    const AdapterConfig config = AdapterConfig::from_json(OrderedJson::parse(text_of(bytes)), origins);
    const OrderedJson written = config.to_json();
    if (AdapterConfig::from_json(written, origins).to_json() != written)
      give_up("the config changes when it is written and read", written.dump().c_str());
    resolve_adapter(config, test::tiny_llama(), "A");
  });
}

namespace {

/// Every kind of tensor that an adapter's file has.
constexpr const char* kAdapterOfAllKinds =
    R"({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj", "down_proj", "embed_tokens"], "bias": "lora_only",
        "rank_pattern": {"down_proj": 1}, "modules_to_save": ["lm_head"]})";

/// A llama that is small enough for a corpus of its adapters.
ModelConfig model_of_adapters() {
  nlohmann::json json = test::tiny_llama_json(/*layers=*/1);
  json["vocab_size"] = 5, json["hidden_size"] = 4, json["intermediate_size"] = 6, json["num_attention_heads"] = 1;
  return ModelConfig::from_json(json);
}

}  // namespace

void read_adapter_weights(std::span<const std::byte> bytes) {
  static const test::TempFolder folder;
  folder.write(kAdapterConfigFile, kAdapterOfAllKinds);
  folder.write(kAdapterWeightsFile, text_of(bytes));
  static const ModelConfig config = model_of_adapters();
  static const ModelAdapter adapter = combined_adapter({{folder.path()}}, config);
  static const Decoder model(with_adapter(config, adapter));
  static const InitialState base(1);
  static const auto memory = Memory::create();
  accept_or_refuse([&] {
    const AdapterWeights weights({{folder.path()}}, model, model.config(), base);
    for (const auto& unit : model.units())
      for (const Parameter& parameter : unit->parameters()) {
        const Shape& shape = parameter.placement.global;
        const Tensor values = Tensor::empty(*memory, shape, DType::f32, Category::workspace);
        weights.fill(StateKind::master, parameter, Interval{0, shape.numel()}, values);
        for (const float value : values.span<float>())
          if (!std::isfinite(value)) give_up("a value that is not finite", parameter.name.c_str());
      }
  });
}

}  // namespace nought::fuzz
