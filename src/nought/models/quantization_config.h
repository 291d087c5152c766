// QuantizationConfig: what the quantization_config of a folder says of its weights.
//
// Design goals: a method, a version or a format that is not read is refused by its name, before any tensor is looked
// at. Non-goals: how activations are rounded, which Nought does not do.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"

namespace nought {

enum class PackedMethod : uint8_t { gptq, awq, compressed_tensors, fp8, mxfp4, bitsandbytes };

/// The names of quant_method that are read.
const std::vector<std::string>& read_quant_methods();

struct QuantizationConfig {
  PackedMethod method = PackedMethod::gptq;
  std::string name;                        // quant_method
  int bits = 0;                            // gptq, awq
  int64_t group_size = -1;                 // -1: whole columns
  bool first_version = false;              // GPTQ stores zero points less one
  std::vector<int64_t> weight_block = {};  // fp8; empty: a scale of the whole matrix
  /// Settings of a module that differ from those above (auto-round).
  struct Override {
    int bits;
    int64_t group_size;
  };
  std::map<std::string, Override> overrides = {};

  /// A group of compressed-tensors.
  struct Group {
    std::string format;
    int bits = 0;
    bool symmetric = true;
    int64_t group_size = -1;
    std::vector<int64_t> block = {};
  };
  std::vector<Group> groups = {};

  /// Reads a quantization_config. ConfigError, which names `source`.
  static QuantizationConfig from_json(const Json& json, const std::string& source);
  /// Reads what a folder's config.json says, or the quantize_config.json of old GPTQ folders; nothing if the weights
  /// are dense. ConfigError, IoError.
  static std::optional<QuantizationConfig> of_folder(const std::filesystem::path& folder);
};

}  // namespace nought
