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
#include "nought/models/packed_weights.h"
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

namespace {

/// A safetensors file.
class FileOfTensors {
 public:
  void add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape, std::string_view bytes) {
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void add_floats(const std::string& name, int64_t count) {
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(i) / static_cast<float>(count);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    add(name, "F32", {count}, bytes);
  }
  std::string str() const {
    const std::string header = header_.dump();
    const uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data_;
  }

 private:
  nlohmann::json header_;
  std::string data_;
};

}  // namespace

void read_quant_state(std::span<const std::byte> bytes) {
  const Shape shape{6, 32};  // in three blocks of 64
  const std::string weight = "layer.weight", state(text_of(bytes));
  const bool nested = state.find("nested_offset") != std::string::npos;
  FileOfTensors tensors;
  tensors.add(weight, "U8", {96, 1}, std::string(96, '\x5a'));
  if (nested) {
    tensors.add(weight + ".absmax", "U8", {3}, "abc");
    tensors.add_floats(weight + ".nested_absmax", 1);
    tensors.add_floats(weight + ".nested_quant_map", 256);
  } else {
    tensors.add_floats(weight + ".absmax", 3);
  }
  tensors.add_floats(weight + ".quant_map", 16);
  tensors.add(weight + ".quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state.size())}, state);
  static const test::TempFolder folder;
  folder.write("model.safetensors", tensors.str());
  static const auto memory = Memory::create();
  accept_or_refuse([&] {
    const WeightFiles files(folder.path());
    const PackedWeights packed(files, QuantizationConfig::from_json(
                                          {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "config.json"));
    const auto found = packed.find(weight, shape);
    if (!found) give_up("codes that are not found", state.c_str());
    const Tensor values = Tensor::empty(*memory, shape, DType::f32, Category::workspace);
    const Interval all{0, shape.numel()};
    found->tensor.read(std::span(&all, 1), values);
    for (const float value : values.span<float>())
      if (!std::isfinite(value)) give_up("a value that is not finite", state.c_str());
  });
}

}  // namespace nought::fuzz
