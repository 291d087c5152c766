#include "nought/config/foreign_settings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/config/accelerate.h"
#include "nought/config/command_line.h"
#include "nought/config/training_rules.h"
#include "nought/config/yaml.h"
#include "nought/io/files.h"

namespace nought {

namespace {

bool has_any(const Json& json, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return json.contains(key); });
}

ForeignFormat format_of(const Json& json, const std::string& file) {
  const auto refuse = [&](const char* what, const std::string& todo) {
    fail<ConfigError>("{}: is {}, which says nothing of a run: {}", file, what, todo);
  };
  require<ConfigError>(json.is_object(), "{}: expected keys and values, found {}", file, describe_json(json));
  if (has_any(json, {"training", "data"})) fail<ConfigError>("{}: is a RUN.json: nought check {}", file, file);
  if (is_accelerate_config(json))
    refuse("a config of accelerate", "write \"deepspeed\": \"" + file + "\" in a RUN.json");
  if (has_any(json, {"zero_optimization", "train_micro_batch_size_per_gpu"}))
    refuse("a ds_config.json", "write \"deepspeed\": \"" + file + "\" in a RUN.json");
  if (has_any(json, {"architectures"})) refuse("the config.json of a model", "nought init finetune --model DIR");
  if (json.contains("base_model")) return ForeignFormat::axolotl;
  if (has_any(json, {"finetuning_type", "cutoff_len", "stage", "dataset_dir"})) return ForeignFormat::llama_factory;
  const auto arguments = training_arguments();
  const bool known = std::any_of(arguments.begin(), arguments.end(),
                                 [&](std::string_view each) { return json.contains(std::string(each)); });
  require<ConfigError>(known,
                       "{}: has no key of TrainingArguments, axolotl or LLaMA-Factory: expected one of these, or a "
                       "script with a line that starts deepspeed, accelerate launch, torchrun or python",
                       file);
  return ForeignFormat::transformers;
}

void add_all(ForeignSettings& settings, const Json& json, const std::vector<std::string>& order) {
  for (const std::string& key : order)
    if (!json[key].is_null()) settings.settings.push_back({key, json[key], settings.place(key)});
}

/// Keys and values; JSON is YAML, too, but for what only a reader of JSON knows.
ForeignSettings read_keys(const std::string& file, const std::string& text, bool is_json) {
  ForeignSettings settings;
  settings.file = file;
  Json json = is_json ? parse_json(text, file) : parse_yaml(text, file, &settings.lines);
  try {
    if (is_json) parse_yaml(text, file, &settings.lines);
  } catch (const ConfigError&) {  // places are without lines then
    settings.lines.clear();
  }
  settings.format = format_of(json, file);
  std::vector<std::string> order;
  for (const auto& [key, value] : json.items()) order.push_back(key);
  std::stable_sort(order.begin(), order.end(),
                   [&](const std::string& a, const std::string& b) { return settings.lines[a] < settings.lines[b]; });
  add_all(settings, json, order);
  return settings;
}

std::string name_of_program(const std::string& word) { return std::filesystem::path(word).filename().string(); }

bool is_file_with(const std::string& word, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return word.ends_with(ending); });
}

/// Where the flags of a launcher begin in a command; nothing if it starts no training.
std::optional<size_t> after_launcher(const ShellCommand& command) {
  constexpr std::array kBefore{"eval", "exec", "nohup", "time", "sudo", "env", "uv", "poetry", "run", "srun", "set"};
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string name = name_of_program(command[i].text);
    const std::string next = i + 1 < command.size() ? command[i + 1].text : "";
    if (name == "accelerate") return next == "launch" ? std::optional(i + 2) : std::nullopt;
    if (name == "trl" || name == "llamafactory-cli" || name == "axolotl") return i + 1;
    if (name == "deepspeed" || name == "deepspeed.pt" || name == "torchrun") return i + 1;
    if (name.starts_with("python")) return i + 1;
    const bool before = std::find(kBefore.begin(), kBefore.end(), name) != kBefore.end();
    if (!before && !name.starts_with('-') && name.find('=') == std::string::npos) return {};
  }
  return {};
}

/// Reads a command from the launcher on.
class LaunchReader {
 public:
  LaunchReader(const ShellCommand& command, size_t begin, const std::string& file)
      : command_(command), at_(begin), file_(file) {
    settings_.format = ForeignFormat::command_line;
    settings_.file = file;
  }

  ForeignSettings read() {
    read_launcher();
    while (at_ < command_.size()) {
      if (const ShellWord& word = command_[at_]; !is_flag(word)) {
        ++at_;
        follow_file(word);
      } else {
        ForeignSetting setting = flag(true);
        if (setting.key == "config" && setting.value.is_string()) {
          follow_file({setting.text, 1, setting.computed});
        } else {
          settings_.settings.push_back(std::move(setting));
        }
      }
    }
    return std::move(settings_);
  }

 private:
  static bool is_flag(const ShellWord& word) {
    const std::string& text = word.text;
    return text.size() > 1 && text[0] == '-' && std::isdigit(static_cast<unsigned char>(text[1])) == 0 &&
           text[1] != '.';
  }

  void read_launcher() {
    for (; at_ < command_.size(); ++at_) {
      const std::string text = command_[at_].text;
      if (text == "-m" || text == "--module") {
        if (++at_ >= command_.size()) break;
        // Modules that are launchers themselves.
        if (command_[at_].text.starts_with("torch.distributed") || command_[at_].text.starts_with("deepspeed"))
          continue;
        settings_.script = command_[at_++].text;
        return;
      }
      if (is_flag(command_[at_])) {
        settings_.of_launcher.push_back(flag(false));
        --at_;
      } else {
        settings_.script = text;
        ++at_;
        return;
      }
    }
  }

  /// The flag here with its values, and what follows becomes the next word. Launchers' flags take one value, which is
  /// no script.
  ForeignSetting flag(bool many) {
    const ShellWord& word = command_[at_++];
    ForeignSetting setting{word.text.substr(word.text.find_first_not_of('-')), true, place(word), "", word.computed};
    if (const size_t end = setting.key.find('='); end != std::string::npos) {
      setting.text = setting.key.substr(end + 1);
      setting.key.resize(end);
      setting.value = yaml_scalar(setting.text);
    }
    std::replace(setting.key.begin(), setting.key.end(), '-', '_');
    std::vector<Json> values;
    while (setting.text.empty() || !values.empty()) {
      if (at_ == command_.size() || is_flag(command_[at_]) || (!many && !values.empty())) break;
      const ShellWord& value = command_[at_];
      if (!many && is_file_with(value.text, {".py"})) break;
      if (values.empty()) setting.text = value.text;
      values.push_back(yaml_scalar(value.text));
      setting.computed = setting.computed || value.computed;
      ++at_;
    }
    if (!values.empty()) setting.value = values.size() == 1 ? values[0] : Json(values);
    return setting;
  }

  /// Settings that an argument of the script names a file of; later flags have precedence.
  void follow_file(const ShellWord& word) {
    std::error_code ignored;
    if (!is_file_with(word.text, {".yaml", ".yml", ".json"})) return;
    const std::filesystem::path beside = std::filesystem::path(file_).parent_path() / word.text;
    const std::string found = std::filesystem::exists(word.text, ignored) ? word.text : beside.string();
    require<IoError>(std::filesystem::exists(found, ignored),
                     "{}: {} is not there: this file has the settings; nought init --from takes it, too", place(word),
                     word.text);
    ForeignSettings inner = read_foreign_settings(found);
    settings_.settings.insert(settings_.settings.end(), inner.settings.begin(), inner.settings.end());
    if (inner.format != ForeignFormat::transformers)
      settings_.format = inner.format, settings_.file = found, settings_.lines = inner.lines;
  }

  std::string place(const ShellWord& word) const { return fmt::format("{}:{}", file_, word.line); }

  const ShellCommand& command_;
  size_t at_;
  const std::string& file_;
  ForeignSettings settings_;
};

ForeignSettings read_script(const std::string& file, const std::string& text) {
  for (const ShellCommand& command : read_commands(text))
    if (const auto begin = after_launcher(command); begin && *begin < command.size())
      if (ForeignSettings settings = LaunchReader(command, *begin, file).read(); !settings.settings.empty())
        return settings;
  fail<ConfigError>(
      "{}: expected TrainingArguments as JSON, a YAML of axolotl or LLaMA-Factory, or a command line that starts "
      "deepspeed, accelerate launch, torchrun, trl or python with flags",
      file);
}

}  // namespace

std::string_view describe(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::axolotl:
      return "a config of axolotl";
    case ForeignFormat::llama_factory:
      return "a config of LLaMA-Factory";
    case ForeignFormat::command_line:
      return "a command line";
    case ForeignFormat::transformers:
      break;
  }
  return "TrainingArguments";
}

std::string ForeignSettings::place(const std::string& path) const {
  const auto found = lines.find(path);
  return found == lines.end() ? file : fmt::format("{}:{}", file, found->second);
}

ForeignSettings read_foreign_settings(const std::string& file) {
  const std::string text = read_text(file);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (file.ends_with(".yaml") || file.ends_with(".yml")) return read_keys(file, text, false);
  if (file.ends_with(".json") || (begin != std::string::npos && text[begin] == '{')) return read_keys(file, text, true);
  return read_script(file, text);
}

}  // namespace nought
