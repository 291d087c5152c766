// Writes an adapter of a model, of random values.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/models/decoder.h"
#include "nought/weights/adapter_files.h"

namespace nought::test {

/// config: keys of adapter_config.json beside its kind and its base.
inline std::filesystem::path write_adapter(const std::filesystem::path& folder, const std::string& base, Json config,
                                           unsigned seed) {
  std::filesystem::create_directories(folder);
  config["peft_type"] = "LORA", config["base_model_name_or_path"] = base;
  std::ofstream(folder / kAdapterConfigFile) << config;
  const ModelConfig plain = ModelConfig::from_folder(base);
  const ModelAdapter adapter = combined_adapter({{folder}}, plain);
  const Decoder model(with_adapter(plain, adapter));
  const auto memory = Memory::create();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.5F);
  std::map<std::string, Tensor> tensors;
  for (const TensorSpec& spec : adapter_specs(model, adapter, DType::f32)) {
    std::vector<float> values(static_cast<size_t>(spec.shape.numel()));
    std::ranges::generate(values, [&] { return normal(random); });
    tensors[spec.name] = Tensor::of<float>(*memory, spec.shape, values);
  }
  save_safetensors(folder / kAdapterWeightsFile, {tensors.begin(), tensors.end()});
  return folder;
}

}  // namespace nought::test
