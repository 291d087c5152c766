#include "nought/cli/trainer_flags.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/config/config_reference.h"
#include "nought/config/key_names.h"
#include "nought/config/training_rules.h"

namespace nought {

namespace {

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

/// The command of the arguments, down to the innermost, and how many of them name it.
std::pair<const CLI::App*, size_t> command_of(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  size_t named = 0;
  while (named < arguments.size()) {
    const std::vector<const CLI::App*> found =
        command->get_subcommands([&](const CLI::App* each) { return each->get_name() == arguments[named]; });
    if (found.empty()) break;
    command = found.front();
    ++named;
  }
  return {command, named};
}

bool is_switch(const ConfigEntry& entry) {
  if (entry.use == KeyUse::implemented) return entry.type.starts_with("true or false");
  return entry.fallback == "false" || entry.fallback.find("true") != std::string::npos;
}

/// The key that a flag's name stands for, with its entry of the reference; nothing if there is none.
const ConfigEntry* entry_of(const std::string& name, const std::vector<ConfigEntry>& reference) {
  const auto at = [&](const std::string& path) -> const ConfigEntry* {
    const auto found =
        std::find_if(reference.begin(), reference.end(), [&](const ConfigEntry& each) { return each.path == path; });
    return found == reference.end() ? nullptr : &*found;
  };
  if (name == "deepspeed") return at("deepspeed");  // which stands beside "training"
  if (const ConfigEntry* own = at("training." + name)) return own;
  const std::string meant = meant_key(name);
  const ConfigEntry* other = meant.empty() ? nullptr : at(meant);
  return other != nullptr && is_switch(*other) ? nullptr : other;  // --dtype f16 is not --bf16 f16
}

/// What --set takes for a value: JSON's spelling of Python's constants, and a list of one for one file.
std::string value_for(const ConfigEntry& entry, const std::string& value) {
  if (value == "True" || value == "False") return lower_case(value);
  if (value == "None") return "null";
  return entry.type.starts_with("a list") && !value.starts_with('[') ? Json::array({value}).dump() : value;
}

bool is_truth(const std::string& value) {
  const std::string lower = lower_case(value);
  return lower == "true" || lower == "false" || lower == "auto" || lower == "null" || lower == "none";
}

bool looks_like_flag(const std::string& text) { return text.starts_with("--") && text.size() > 2; }

}  // namespace

std::vector<std::string> with_trainer_flags(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto [command, named] = command_of(app, arguments);
  if (!has_option(*command, "--set")) return arguments;
  std::vector<ConfigEntry> reference;
  std::vector<std::string> result(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(named));
  for (size_t i = named; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    if (argument == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const ConfigEntry* entry = nullptr;
    if (looks_like_flag(name) && !has_option(*command, name)) {
      if (reference.empty()) reference = config_reference();
      name.erase(0, 2);
      std::replace(name.begin(), name.end(), '-', '_');
      entry = entry_of(name, reference);
    }
    if (entry == nullptr) {
      result.push_back(argument);
      continue;
    }
    std::string value = "true";
    const bool follows = i + 1 < arguments.size() && !looks_like_flag(arguments[i + 1]);
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (is_switch(*entry) ? follows && is_truth(arguments[i + 1]) : follows) {
      value = arguments[++i];
    } else if (!is_switch(*entry)) {
      fail<ConfigError>("--{} needs a value: it stands for --set {}=VALUE", name, entry->path);
    }
    result.insert(result.end(), {"--set", fmt::format("{}={}", entry->path, value_for(*entry, value))});
  }
  return result;
}

std::vector<std::string> trainer_flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  if (!has_option(command, "--set")) return names;
  for (const ConfigEntry& entry : config_reference())
    if (entry.path.starts_with("training.") && entry.path.find('.', 9) == std::string::npos)
      names.push_back("--" + entry.path.substr(9));
  return names;
}

}  // namespace nought
