#include "nought/models/quantization_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

/// Reads one object, and refuses what it cannot read in a line that names the source.
class Settings {
 public:
  Settings(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(one_line(fmt::format("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...))));
  }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key) && !json_.at(key).is_null(); }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) refuse("{} is {}, expected a name", key, excerpt(json_.at(key).dump()));
    return json_.at(key).get<std::string>();
  }
  int64_t integer(const char* key, int64_t otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_number_integer()) refuse("{} is {}, expected a number", key, excerpt(json_.at(key).dump()));
    return json_.at(key).get<int64_t>();
  }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) refuse("{} is {}, expected true or false", key, excerpt(json_.at(key).dump()));
    return json_.at(key).get<bool>();
  }
  std::vector<int64_t> pair(const char* key) const {
    std::vector<int64_t> values;
    if (!has(key)) return values;
    const Json& list = json_.at(key);
    if (list.is_array())
      for (const Json& each : list)
        if (each.is_number_integer() && each.get<int64_t>() > 0) values.push_back(each.get<int64_t>());
    if (!list.is_array() || list.size() != 2 || values.size() != 2)
      refuse("{} is {}, expected two positive numbers", key, excerpt(list.dump()));
    return values;
  }
  Settings at(const char* key) const {
    static const Json kNone = Json::object();
    return {has(key) ? json_.at(key) : kNone, fmt::format("{}.{}", source_, key)};
  }
  const Json& json() const { return json_; }
  const std::string& source() const { return source_; }

 private:
  const Json& json_;
  std::string source_;
};

struct Method {
  const char* name;
  PackedMethod method;
};
constexpr Method kMethods[] = {{"gptq", PackedMethod::gptq},   {"auto-round", PackedMethod::gptq},
                               {"awq", PackedMethod::awq},     {"compressed-tensors", PackedMethod::compressed_tensors},
                               {"fp8", PackedMethod::fp8},     {"mxfp8", PackedMethod::fp8},
                               {"mxfp4", PackedMethod::mxfp4}, {"bitsandbytes", PackedMethod::bitsandbytes}};

void require_group_size(const Settings& section, int64_t size) {
  if (size != -1 && size <= 0)
    section.refuse("group_size is {}, expected a positive number, or -1 for whole columns", size);
}

void read_gptq(const Settings& section, QuantizationConfig& config) {
  const std::string format = section.text("checkpoint_format", section.text("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    section.refuse("GPTQ's format \"{}\" is not read; gptq and gptq_v2 are", format);
  config.first_version = format == "gptq";
  if (config.bits != 2 && config.bits != 3 && config.bits != 4 && config.bits != 8)
    section.refuse("bits is {}; GPTQ of 2, 3, 4 and 8 bits is read", config.bits);
  const std::string packed = section.text("pack_dtype", "int32");
  if (section.boolean("is_marlin_format", false))
    section.refuse("GPTQ's format \"marlin\" is not read; gptq and gptq_v2 are");
  if (packed != "int32") section.refuse("pack_dtype \"{}\" is not read; int32 is", packed);
  if (!section.has("dynamic")) return;
  for (const auto& [pattern, settings] : section.json().at("dynamic").items())
    if (!pattern.starts_with("-:"))  // whether a module has codes is seen by its tensors
      section.refuse("\"dynamic\", other bits by patterns of modules, is not read");
}

void read_awq(const Settings& section, QuantizationConfig& config) {
  const std::string version = lower_case(section.text("version", "gemm"));
  if (version != "gemm") section.refuse("AWQ's version \"{}\" is not read; gemm is", version);
  if (config.bits != 4) section.refuse("bits is {}; AWQ of 4 bits is read", config.bits);
}

void read_auto_round(const Settings& section, QuantizationConfig& config) {
  const std::string packing = section.text("packing_format", "auto_round:auto_gptq");
  const bool is_awq = packing.find("awq") != std::string::npos;
  if (!is_awq && packing.find("gptq") == std::string::npos)
    section.refuse("packing_format \"{}\" is not read; auto_round:auto_gptq and auto_round:auto_awq are", packing);
  if (is_awq) {
    config.method = PackedMethod::awq;
    read_awq(section, config);
  } else {
    read_gptq(section, config);
    config.first_version = true;
  }
  const Settings extra = section.at("extra_config");
  for (const auto& [module, settings] : extra.json().items()) {
    const Settings own(settings, fmt::format("{}.{}", extra.source(), excerpt(module)));
    const int64_t group = own.integer("group_size", config.group_size);
    require_group_size(own, group);
    config.overrides[module] = {static_cast<int>(own.integer("bits", config.bits)), group};
  }
}

QuantizationConfig::Group read_group(const Settings& section, const std::string& format_of_all) {
  const Settings weights = section.at("weights");
  QuantizationConfig::Group group;
  group.format = section.text("format", format_of_all);
  constexpr std::string_view kFormats[] = {"int-quantized",  "float-quantized",      "naive-quantized",
                                           "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"};
  if (std::find(std::begin(kFormats), std::end(kFormats), group.format) == std::end(kFormats))
    section.refuse("the format \"{}\" is not read; read are {}", group.format, fmt::join(kFormats, ", "));
  group.bits = static_cast<int>(weights.integer("num_bits", 8));
  if (group.bits < 1 || group.bits > 8) weights.refuse("num_bits is {}, expected 1 to 8", group.bits);
  group.symmetric = weights.boolean("symmetric", true);
  group.group_size = weights.integer("group_size", -1);
  require_group_size(weights, group.group_size);
  if (weights.text("strategy", "") == "block") group.block = weights.pair("block_structure");
  return group;
}

void read_compressed(const Settings& section, QuantizationConfig& config) {
  const std::string format = section.text("format", "dense");
  if (section.has("transform_config") && !section.json().at("transform_config").empty())
    section.refuse("transform_config, rotations of weights and activations, is not read");
  const std::string sparse = section.at("sparsity_config").text("format", "dense");
  if (sparse != "dense") section.refuse("the sparse format \"{}\" is not read", sparse);
  const Settings groups = section.at("config_groups");
  for (const auto& [name, group] : groups.json().items())
    config.groups.push_back(read_group(Settings(group, fmt::format("{}.{}", groups.source(), excerpt(name))), format));
  if (config.groups.empty()) section.refuse("has no config_groups");
}

}  // namespace

const std::vector<std::string>& read_quant_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Method& each : kMethods) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

QuantizationConfig QuantizationConfig::from_json(const Json& json, const std::string& source) {
  const Settings section(json, source + ": quantization_config");
  QuantizationConfig config;
  config.name = section.text("quant_method", "unnamed");
  const auto* known = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const Method& each) { return config.name == each.name; });
  if (known == std::end(kMethods))
    section.refuse("weights of the method \"{}\" are not read; read are {}: use the original model", config.name,
                   fmt::join(read_quant_methods(), ", "));
  config.method = known->method;
  config.bits = static_cast<int>(section.integer("bits", 4));
  config.group_size = section.integer("group_size", -1);
  if (config.method == PackedMethod::gptq) require_group_size(section, config.group_size);
  if (config.name == "gptq") read_gptq(section, config);
  if (config.name == "awq") require_group_size(section, config.group_size), read_awq(section, config);
  if (config.name == "auto-round") read_auto_round(section, config);
  if (config.name == "compressed-tensors") read_compressed(section, config);
  if (config.method == PackedMethod::fp8) config.weight_block = section.pair("weight_block_size");
  if (config.name == "mxfp8" && config.weight_block.empty()) config.weight_block = {1, 32};
  return config;
}

std::optional<QuantizationConfig> QuantizationConfig::of_folder(const std::filesystem::path& folder) {
  const auto read = [&](const char* name) {
    const std::optional<std::string> text = bytes_if_there(folder / name);
    const Json json = text ? Json::parse(*text, nullptr, false) : Json();
    require<IoError>(!json.is_discarded(), "{}: not valid JSON", (folder / name).string());
    return json;
  };
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return std::nullopt;
  const Json config = read("config.json");
  const std::string source = (folder / "config.json").string();
  if (config.is_object() && config.contains("quantization_config") && !config["quantization_config"].is_null()) {
    require<ConfigError>(config.value("model_type", Json()) != "gpt2",
                         "{}: quantised weights of gpt2, whose matrices are [in, out], are not read", source);
    return from_json(config["quantization_config"], source);
  }
  Json old = read("quantize_config.json");
  if (!old.is_object()) return std::nullopt;
  if (!old.contains("quant_method")) old["quant_method"] = "gptq";
  return from_json(old, (folder / "quantize_config.json").string());
}

}  // namespace nought
