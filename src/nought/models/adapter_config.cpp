#include "nought/models/adapter_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/name_pattern.h"
#include "nought/base/text.h"

namespace nought {

namespace {

/// A key of peft that asks for what is not there, and the values that do not.
struct Unsupported {
  std::string_view key;
  std::string_view off;  // JSON values, separated by " | "
  std::string_view what;
};
constexpr auto kUnsupported = std::to_array<Unsupported>({
    {"layer_replication", "[]", "a model of repeated layers"},
    {"loftq_config", "{}", "LoftQ"},
    {"eva_config", "{}", "EVA"},
    {"corda_config", "{}", "CorDA"},
    {"lora_ga_config", "{}", "LoRA-GA"},
    {"use_qalora", "false", "QALoRA"},
    {"alora_invocation_tokens", "[]", "activated LoRA"},
    {"arrow_config", "{}", "Arrow routing"},
    {"use_bdlora", "false | {}", "block-diagonal LoRA"},
    {"velora_config", "{}", "VeLoRA"},
    {"kasa_config", "{}", "KaSA"},
    {"monteclora_config", "{}", "MonteCLoRA"},
    {"megatron_config", "{}", "Megatron-LM's layers"},
});

/// Keys that say nothing of what is computed.
constexpr auto kIgnored =
    std::to_array<std::string_view>({"inference_mode", "peft_version", "auto_mapping", "revision", "megatron_core",
                                     "qalora_group_size", "runtime_config", "_custom_modules"});

/// Starts of init_lora_weights that peft has and Nought has not.
constexpr auto kOtherStarts = std::to_array<std::string_view>({"eva", "corda", "loftq", "lora_ga", "mica"});
constexpr auto kNamedStarts =
    std::to_array<std::pair<AdapterStart, std::string_view>>({{AdapterStart::gaussian, "gaussian"},
                                                              {AdapterStart::orthogonal, "orthogonal"},
                                                              {AdapterStart::olora, "olora"},
                                                              {AdapterStart::pissa, "pissa"}});
constexpr std::string_view kIterations = "pissa_niter_";
constexpr int64_t kMostIterations = 1000;

/// What is read of an object, key by key.
class Reader {
 public:
  Reader(const OrderedJson& json, const Origins& origins, const std::string& path)
      : json_(json), origins_(origins), path_(path) {}

  std::string place(std::string_view key) const { return one_line(origins_.place(join_path(path_, key))); }

  /// The value of a key; null if it is not given.
  const OrderedJson& at(const char* key) {
    static const OrderedJson kNothing;
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() ? kNothing : *found;
  }

  [[noreturn]] void fail_type(const char* key, std::string_view expected) {
    fail<ConfigError>("{}: expected {}, found {}", place(key), expected, describe_json(Json::parse(at(key).dump())));
  }
  bool boolean(const char* key) {
    if (at(key).is_null()) return false;
    if (!at(key).is_boolean()) fail_type(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key) {
    if (at(key).is_null()) return "";
    if (!at(key).is_string()) fail_type(key, "a string");
    return at(key).get<std::string>();
  }
  int64_t integer(const char* key, const OrderedJson& value) {
    if (!value.is_number_integer()) fail_type(key, "integers");
    return value.get<int64_t>();
  }
  double number(const char* key, const OrderedJson& value) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail_type(key, "finite numbers");
    return value.get<double>();
  }
  int64_t rank(const char* key, const OrderedJson& value) {
    const int64_t rank = integer(key, value);
    require<ConfigError>(rank >= 1, "{}: a rank is at least 1, got {}", place(key), rank);
    return rank;
  }
  /// A list of strings, or one of them.
  std::vector<std::string> texts(const char* key) {
    const OrderedJson& value = at(key);
    if (value.is_null()) return {};
    std::vector<std::string> all;
    for (const OrderedJson& each : value.is_array() ? value : OrderedJson::array({value})) {
      if (!each.is_string()) fail_type(key, "strings");
      all.push_back(each.get<std::string>());
      require<ConfigError>(!all.back().empty(), "{}: an empty name", place(key));
    }
    return all;
  }
  LayerChoice choice(const char* key) {
    LayerChoice choice;
    std::vector<std::string> all = texts(key);
    if (!at(key).is_string()) {
      choice.names = std::move(all);
    } else {
      check_pattern(key, all.front());
      choice.pattern = std::move(all.front());
    }
    return choice;
  }
  template <class T, class Read>
  LayerPatterns<T> patterns(const char* key, const Read& read) {
    const OrderedJson& value = at(key);
    if (value.is_null()) return {};
    if (!value.is_object()) fail_type(key, "an object of patterns and numbers");
    LayerPatterns<T> all;
    for (const auto& [pattern, number] : value.items()) {
      check_pattern(key, pattern);
      all.emplace_back(pattern, read(number));
    }
    return all;
  }
  /// ConfigError for what is not supported, and for what is not known.
  void refuse_rest() {
    for (const auto& [key, value] : json_.items()) {
      if (known_.contains(key) || std::ranges::count(kIgnored, std::string_view(key)) > 0) continue;
      const auto found = std::ranges::find(kUnsupported, std::string_view(key), &Unsupported::key);
      if (found == kUnsupported.end())
        fail<ConfigError>("{}: unknown key of an adapter{}", place(key), did_you_mean(key, all_keys()));
      require<ConfigError>(is_off(value, found->off), "{} = {} is not supported yet ({}): remove it", place(key),
                           value.dump(), found->what);
    }
  }

 private:
  static bool is_off(const OrderedJson& value, std::string_view off) {
    if (value.is_null()) return true;
    for (size_t bar = 0; !off.empty(); off.remove_prefix(std::min(off.size(), bar + 3))) {
      bar = std::min(off.find(" | "), off.size());
      if (value == OrderedJson::parse(off.substr(0, bar))) return true;
    }
    return false;
  }
  void check_pattern(const char* key, const std::string& pattern) {
    try {
      const NamePattern compiled("\\A(?:" + pattern + ")\\z");
    } catch (const ConfigError& error) {
      fail<ConfigError>("{}: {}", place(key), error.what());
    }
  }
  std::vector<std::string> all_keys() const {
    std::vector<std::string> keys(known_.begin(), known_.end());
    for (const Unsupported& each : kUnsupported) keys.emplace_back(each.key);
    return keys;
  }

  const OrderedJson& json_;
  const Origins& origins_;
  const std::string path_;
  std::set<std::string, std::less<>> known_;
};

void require_lora(Reader& reader) {
  for (const char* key : {"type", "peft_type"}) {
    const std::string type = reader.text(key);
    require<ConfigError>(type.empty() || lower_case(type) == "lora",
                         "{} = \"{}\" is not supported: of peft's adapters there is LoRA alone (\"lora\")",
                         reader.place(key), one_line(type));
  }
}

AdapterStart read_start(Reader& reader) {
  const char* key = "init_lora_weights";
  const OrderedJson& value = reader.at(key);
  if (value.is_null()) return AdapterStart::uniform;
  if (value.is_boolean()) return value.get<bool>() ? AdapterStart::uniform : AdapterStart::random;
  const std::string name = lower_case(reader.text(key));
  for (const auto& [start, known] : kNamedStarts)
    if (name == known) return start;
  const bool known = std::ranges::any_of(kOtherStarts, [&](std::string_view each) { return name.starts_with(each); });
  fail<ConfigError>(
      "{} = {}: {}; true, false, \"gaussian\", \"orthogonal\", \"olora\", \"pissa\" and \"pissa_niter_4\" are known",
      reader.place(key), value.dump(), known ? "this start is not supported yet" : "an unknown start");
}

/// N of "pissa_niter_N"; 0 for other starts.
int64_t read_iterations(Reader& reader) {
  const OrderedJson& value = reader.at("init_lora_weights");
  if (!value.is_string()) return 0;
  const std::string name = lower_case(value.get<std::string>());
  int64_t count = 0;
  if (!name.starts_with(kIterations)) return 0;
  const char *begin = name.data() + kIterations.size(), *end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, count);
  return error == std::errc() && stop == end && count > 0 && count <= kMostIterations ? count : 0;
}

std::vector<int32_t> read_tokens(Reader& reader, const OrderedJson& list) {
  const char* key = "trainable_token_indices";
  if (!list.is_array()) reader.fail_type(key, "a list of tokens, or lists by the names of layers");
  std::vector<int32_t> tokens;
  for (const OrderedJson& each : list) {
    const int64_t token = reader.integer(key, each);
    require<ConfigError>(token >= 0 && token <= std::numeric_limits<int32_t>::max(), "{}: there is no token {}",
                         reader.place(key), token);
    require<ConfigError>(std::ranges::count(tokens, token) == 0, "{}: token {} comes twice", reader.place(key), token);
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

std::vector<std::pair<std::string, std::vector<int32_t>>> read_tokens(Reader& reader) {
  const OrderedJson& value = reader.at("trainable_token_indices");
  std::vector<std::pair<std::string, std::vector<int32_t>>> all;
  if (value.is_object()) {
    for (const auto& [layer, list] : value.items()) {
      require<ConfigError>(!layer.empty(), "{}: an empty name", reader.place("trainable_token_indices"));
      all.emplace_back(layer, read_tokens(reader, list));
    }
  } else if (!value.is_null()) {
    all.emplace_back("", read_tokens(reader, value));
  }
  std::erase_if(all, [](const auto& each) { return each.second.empty(); });
  return all;
}

OrderedJson tokens_json(const AdapterConfig& config) {
  if (config.tokens.empty()) return nullptr;
  if (config.tokens.front().first.empty()) return config.tokens.front().second;
  OrderedJson json = OrderedJson::object();
  for (const auto& [layer, tokens] : config.tokens) json[layer] = tokens;
  return json;
}

OrderedJson start_json(AdapterStart start, int64_t iterations) {
  if (iterations > 0) return fmt::format("{}{}", kIterations, iterations);
  for (const auto& [each, name] : kNamedStarts)
    if (each == start) return name;
  return start == AdapterStart::uniform;
}

constexpr auto kBiases = std::to_array<std::pair<AdapterBias, std::string_view>>(
    {{AdapterBias::none, "none"}, {AdapterBias::all, "all"}, {AdapterBias::lora_only, "lora_only"}});

AdapterBias read_bias(Reader& reader) {
  const std::string name = reader.text("bias");
  if (name.empty()) return AdapterBias::none;
  for (const auto& [bias, known] : kBiases)
    if (name == known) return bias;
  fail<ConfigError>("{}: expected none, all or lora_only, found \"{}\"", reader.place("bias"), one_line(name));
}

std::string_view name_of(AdapterBias bias) {
  return std::ranges::find(kBiases, bias, &std::pair<AdapterBias, std::string_view>::first)->second;
}

template <class T>
OrderedJson patterns_json(const LayerPatterns<T>& patterns) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [pattern, value] : patterns) json[pattern] = value;
  return json;
}

/// 8 rather than 8.0, as people write it.
OrderedJson number_json(double value) {
  constexpr double kLargest = 1e15;
  const bool whole = std::abs(value) < kLargest && std::floor(value) == value;
  return whole ? OrderedJson(static_cast<int64_t>(value)) : OrderedJson(value);
}

OrderedJson names_json(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names.empty() ? OrderedJson() : OrderedJson(names);
}

OrderedJson choice_json(const LayerChoice& choice) {
  return choice.pattern ? OrderedJson(*choice.pattern) : names_json(choice.names);
}

OrderedJson text_json(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); }

}  // namespace

bool AdapterConfig::targets_all() const { return targets.pattern && lower_case(*targets.pattern) == "all-linear"; }

double AdapterConfig::scale_of(int64_t rank, double layer_alpha) const {
  const auto of = static_cast<double>(rank);
  return layer_alpha / (rslora ? std::sqrt(of) : of);
}

AdapterConfig AdapterConfig::from_json(const OrderedJson& json, const Origins& origins, const std::string& path) {
  require<ConfigError>(json.is_object(), "{}: expected an object of peft's keys, found {}", origins.place(path),
                       describe_json(Json::parse(json.dump())));
  Reader reader(json, origins, path);
  require_lora(reader);
  AdapterConfig config;
  config.base = reader.text("base_model_name_or_path");
  config.task_type = reader.text("task_type");
  require<ConfigError>(config.task_type.empty() || config.task_type == "CAUSAL_LM",
                       "{} = \"{}\" is not supported: only CAUSAL_LM", reader.place("task_type"),
                       one_line(config.task_type));
  if (!reader.at("r").is_null()) config.r = reader.rank("r", reader.at("r"));
  if (!reader.at("lora_alpha").is_null()) config.alpha = reader.number("lora_alpha", reader.at("lora_alpha"));
  config.rslora = reader.boolean("use_rslora");
  config.dora = reader.boolean("use_dora");
  config.bias_of_b = reader.boolean("lora_bias");
  require<ConfigError>(!config.bias_of_b || !config.dora, "{} and use_dora do not go together: remove one of the two",
                       reader.place("lora_bias"));
  if (!reader.at("lora_dropout").is_null()) config.dropout = reader.number("lora_dropout", reader.at("lora_dropout"));
  require<ConfigError>(config.dropout >= 0 && config.dropout < 1, "{}: expected a number >= 0 and < 1, found {}",
                       reader.place("lora_dropout"), config.dropout);
  config.targets = reader.choice("target_modules");
  config.excluded = reader.choice("exclude_modules");
  config.parameters = reader.texts("target_parameters");
  for (const auto& [given, key] : {std::pair(config.dropout > 0, "lora_dropout"), std::pair(config.dora, "use_dora"),
                                   std::pair(config.bias_of_b, "lora_bias")})
    require<ConfigError>(config.parameters.empty() || !given,
                         "{} does not go with {}, as in peft: remove one of the two", reader.place("target_parameters"),
                         key);
  const OrderedJson& layers = reader.at("layers_to_transform");
  if (!layers.is_null())
    for (const OrderedJson& each : layers.is_array() ? layers : OrderedJson::array({layers}))
      config.layers.push_back(reader.integer("layers_to_transform", each));
  config.layers_pattern = reader.texts("layers_pattern");
  require<ConfigError>(config.layers.empty() || !config.targets.pattern,
                       "{} needs a list of target_modules, and not a pattern", reader.place("layers_to_transform"));
  config.rank_pattern = reader.patterns<int64_t>(
      "rank_pattern", [&](const OrderedJson& value) { return reader.rank("rank_pattern", value); });
  config.alpha_pattern = reader.patterns<double>(
      "alpha_pattern", [&](const OrderedJson& value) { return reader.number("alpha_pattern", value); });
  config.start_iterations = read_iterations(reader);
  config.start = config.start_iterations > 0 ? AdapterStart::pissa : read_start(reader);
  config.modules_to_save = reader.texts("modules_to_save");
  config.tokens = read_tokens(reader);
  config.ties = reader.boolean("ensure_weight_tying");
  config.bias = read_bias(reader);
  config.fan_in_fan_out = reader.boolean("fan_in_fan_out");
  reader.refuse_rest();
  return config;
}

OrderedJson AdapterConfig::to_json() const {
  OrderedJson json{{"alora_invocation_tokens", nullptr},
                   {"alpha_pattern", OrderedJson::object()},
                   {"arrow_config", nullptr},
                   {"auto_mapping", nullptr},
                   {"base_model_name_or_path", text_json(base)},
                   {"bias", name_of(bias)},
                   {"corda_config", nullptr},
                   {"ensure_weight_tying", ties},
                   {"eva_config", nullptr},
                   {"exclude_modules", choice_json(excluded)},
                   {"fan_in_fan_out", fan_in_fan_out},
                   {"inference_mode", true},
                   {"init_lora_weights", start_json(start, start_iterations)},
                   {"kasa_config", nullptr},
                   {"layer_replication", nullptr},
                   {"layers_pattern", names_json(layers_pattern)},
                   {"layers_to_transform", layers.empty() ? OrderedJson() : OrderedJson(layers)},
                   {"loftq_config", OrderedJson::object()},
                   {"lora_alpha", number_json(alpha)},
                   {"lora_bias", bias_of_b},
                   {"lora_dropout", dropout},
                   {"lora_ga_config", nullptr},
                   {"megatron_config", nullptr},
                   {"megatron_core", "megatron.core"},
                   {"modules_to_save", names_json(modules_to_save)},
                   {"monteclora_config", nullptr},
                   {"peft_type", "LORA"},
                   {"peft_version", "0.21.2"},
                   {"qalora_group_size", 16},
                   {"r", r},
                   {"rank_pattern", patterns_json(rank_pattern)},
                   {"revision", nullptr},
                   {"target_modules", choice_json(targets)},
                   {"target_parameters", names_json(parameters)},
                   {"task_type", text_json(task_type)},
                   {"trainable_token_indices", tokens_json(*this)},
                   {"use_bdlora", nullptr},
                   {"use_dora", dora},
                   {"use_qalora", false},
                   {"use_rslora", rslora},
                   {"velora_config", nullptr}};
  for (const auto& [pattern, value] : alpha_pattern) json["alpha_pattern"][pattern] = number_json(value);
  return json;
}

}  // namespace nought
