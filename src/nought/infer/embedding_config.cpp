#include "nought/infer/embedding_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/safetensors.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, PoolingMode> kPooling[] = {
    // In the order in which vectors of several modes lie behind one another.
    {"cls", PoolingMode::cls},
    {"max", PoolingMode::max},
    {"mean", PoolingMode::mean},
    {"mean_sqrt_len_tokens", PoolingMode::mean_sqrt_len},
    {"weightedmean", PoolingMode::weightedmean},
    {"lasttoken", PoolingMode::lasttoken}};
/// The flags of versions before 6, for the same modes.
constexpr std::pair<const char*, PoolingMode> kPoolingFlags[] = {
    {"pooling_mode_cls_token", PoolingMode::cls},
    {"pooling_mode_max_tokens", PoolingMode::max},
    {"pooling_mode_mean_tokens", PoolingMode::mean},
    {"pooling_mode_mean_sqrt_len_tokens", PoolingMode::mean_sqrt_len},
    {"pooling_mode_weightedmean_tokens", PoolingMode::weightedmean},
    {"pooling_mode_lasttoken", PoolingMode::lasttoken}};
constexpr std::pair<const char*, DenseActivation> kActivations[] = {
    {"Identity", DenseActivation::identity}, {"Tanh", DenseActivation::tanh},       {"ReLU", DenseActivation::relu},
    {"GELU", DenseActivation::gelu},         {"Sigmoid", DenseActivation::sigmoid}, {"SiLU", DenseActivation::silu}};

template <class Names>
std::string names_of(const Names& names) {
  std::vector<std::string> all;
  for (const auto& [name, value] : names) all.emplace_back(name);
  return fmt::format("{}", fmt::join(all, ", "));
}

/// An object of a file; nothing if the file is not there.
std::optional<Json> object_in(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  Json json = read_json_file(file.string());
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", file.string(), describe_json(json));
  return json;
}

/// A key of a type; nothing if it is absent or null.
template <class T>
std::optional<T> value_of(const Json& json, const char* key, const fs::path& file) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                    : std::is_same_v<T, std::string> ? found->is_string()
                                                     : found->is_number();
  require<ConfigError>(fits, "{}: {} is {}", file.string(), key, one_line(found->dump()));
  return found->get<T>();
}

/// "sentence_transformers.models.Pooling": "Pooling".
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

PoolingMode known_pooling(const Json& name, const fs::path& file) {
  const auto mode = name.is_string() ? pooling_named(name.get<std::string>()) : std::nullopt;
  require<ConfigError>(mode.has_value(), "{}: the pooling {} is none of {}", file.string(), one_line(name.dump()),
                       pooling_names());
  return *mode;
}

void read_pooling(const fs::path& folder, EmbeddingConfig& config) {
  const fs::path file = folder / "config.json";
  const std::optional<Json> json = object_in(file);
  require<IoError>(json.has_value(), "{}: there is no such file; modules.json names its folder for the pooling",
                   file.string());
  config.include_prompt = value_of<bool>(*json, "include_prompt", file).value_or(true);
  if (const auto modes = json->find("pooling_mode"); modes != json->end()) {
    for (const Json& mode : modes->is_array() ? *modes : Json::array({*modes}))
      config.pooling.push_back(known_pooling(mode, file));
    return;
  }
  for (const auto& item : json->items()) {
    const std::string& key = item.key();
    const auto flag = std::ranges::find_if(kPoolingFlags, [&](const auto& each) { return key == each.first; });
    require<ConfigError>(flag != std::end(kPoolingFlags) || !key.starts_with("pooling_mode") || item.value() != true,
                         "{}: the pooling {} is none of {}", file.string(), key, names_of(kPoolingFlags));
  }
  for (const auto& [flag, mode] : kPoolingFlags)
    if (value_of<bool>(*json, flag, file).value_or(false)) config.pooling.push_back(mode);
  if (config.pooling.empty()) config.pooling.push_back(PoolingMode::mean);
}

DenseModule read_dense(const fs::path& folder, Memory& memory) {
  const fs::path file = folder / "config.json";
  const std::optional<Json> json = object_in(file);
  require<IoError>(json.has_value(), "{}: there is no such file; modules.json names its folder for a dense layer",
                   file.string());
  require<ConfigError>(!value_of<bool>(*json, "use_residual", file).value_or(false),
                       "{}: use_residual is true: residuals of dense layers are not computed", file.string());
  const auto input = value_of<std::string>(*json, "module_input_name", file);
  require<ConfigError>(!input || *input == "sentence_embedding",
                       "{}: module_input_name is \"{}\": dense layers are of whole texts here", file.string(),
                       one_line(input.value_or("")));
  const std::string name =
      last_part(value_of<std::string>(*json, "activation_function", file).value_or("torch.nn.Tanh"));
  const auto activation = std::ranges::find_if(kActivations, [&](const auto& each) { return name == each.first; });
  require<ConfigError>(activation != std::end(kActivations), "{}: activation_function {} is none of {}", file.string(),
                       one_line(name), names_of(kActivations));
  std::error_code ignored;
  const bool safe = fs::is_regular_file(folder / "model.safetensors", ignored);
  const SafetensorsFile weights(folder / (safe ? "model.safetensors" : "pytorch_model.bin"));
  const auto read = [&](const char* tensor) {
    const TensorEntry& entry = weights.at(tensor);
    const Tensor values = Tensor::empty(memory, entry.shape, DType::f32, Category::parameters, memory.host_pool());
    weights.read(tensor, {0, values.numel()}, values);
    return values;
  };
  DenseModule dense{.weight = read("linear.weight"), .bias = {}, .activation = activation->second};
  if (weights.find("linear.bias")) dense.bias = read("linear.bias");
  require<ConfigError>(dense.weight.rank() == 2, "{}: linear.weight has shape {}, expected [out, in]",
                       weights.path().string(), dense.weight.shape());
  return dense;
}

void read_modules(const fs::path& folder, Memory& memory, EmbeddingConfig& config) {
  const fs::path file = folder / "modules.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return;
  config.found = true;
  const Json modules = read_json_file(file.string());
  require<ConfigError>(modules.is_array() && !modules.empty(), "{}: expected a list of modules, found {}",
                       file.string(), describe_json(modules));
  for (const Json& module : modules) {
    require<ConfigError>(module.is_object(), "{}: expected an object for each module, found {}", file.string(),
                         describe_json(module));
    const std::string whole = value_of<std::string>(module, "type", file).value_or("?"), type = last_part(whole);
    const std::string within = value_of<std::string>(module, "path", file).value_or("");
    const fs::path path = within.empty() ? folder : folder / within;
    if (type == "Transformer") {
      config.model = path;
    } else if (type == "Pooling") {
      read_pooling(path, config);
    } else if (type == "Normalize") {
      config.steps.emplace_back();
    } else if (type == "Dense") {
      config.steps.push_back({read_dense(path, memory)});
    } else {
      require<ConfigError>(type == "Dropout",  // which drops nothing here
                           "{}: the module {} is not computed; computed are Transformer, Pooling, Dense, Normalize and "
                           "Dropout",
                           file.string(), one_line(whole));
    }
  }
  require<ConfigError>(!config.pooling.empty(), "{}: has no Pooling module: --pooling says which", file.string());
}

/// How long texts may be, and how they are cut.
void read_lengths(EmbeddingConfig& config) {
  const auto keep_least = [&](const std::optional<double>& tokens) {
    constexpr double kUnlimited = 1e9;  // transformers writes 1e30 where there is no limit
    if (!tokens || *tokens < 1 || *tokens >= kUnlimited || config.max_tokens) return;
    config.max_tokens = static_cast<int64_t>(*tokens);
  };
  for (const char* kind : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const fs::path file = config.model / fmt::format("sentence_{}_config.json", kind);
    const std::optional<Json> json = object_in(file);
    if (!json) continue;
    keep_least(value_of<double>(*json, "max_seq_length", file));
    config.lowercase = value_of<bool>(*json, "do_lower_case", file).value_or(false);
    break;
  }
  const fs::path file = config.model / "tokenizer_config.json";
  const std::optional<Json> json = object_in(file);
  if (!json) return;
  keep_least(value_of<double>(*json, "model_max_length", file));
  config.cuts_left = value_of<std::string>(*json, "truncation_side", file) == "left";
}

void read_prompts(const fs::path& folder, EmbeddingConfig& config) {
  const fs::path file = folder / "config_sentence_transformers.json";
  const std::optional<Json> json = object_in(file);
  if (!json) return;
  const auto prompts = json->find("prompts");
  if (prompts != json->end() && prompts->is_object())
    for (const auto& [name, text] : prompts->items())
      if (text.is_string()) config.prompts[name] = text.get<std::string>();
  config.default_prompt = value_of<std::string>(*json, "default_prompt_name", file).value_or("");
  if (!config.default_prompt.empty()) config.prompt(config.default_prompt);
}

}  // namespace

std::optional<PoolingMode> pooling_named(const std::string& name) {
  const auto found = std::ranges::find_if(kPooling, [&](const auto& each) { return name == each.first; });
  return found == std::end(kPooling) ? std::nullopt : std::optional(found->second);
}

std::string pooling_names() { return names_of(kPooling); }

const std::string& EmbeddingConfig::prompt(const std::string& name) const {
  const auto found = prompts.find(name);
  require<ConfigError>(found != prompts.end(), "{} has no prompt \"{}\"; {}", model.string(), one_line(name),
                       prompts.empty() ? std::string("its config_sentence_transformers.json names none")
                                       : fmt::format("it has {}", one_line(names_of(prompts))));
  return found->second;
}

EmbeddingConfig EmbeddingConfig::from_folder(const fs::path& folder, Memory& memory) {
  EmbeddingConfig config{.model = folder};
  read_modules(folder, memory, config);
  read_lengths(config);
  read_prompts(folder, config);
  return config;
}

}  // namespace nought
