#include "nought/cli/command_table.h"

#include "nought/base/text.h"
#include "nought/config/config_reference.h"

namespace nought {

namespace {

std::vector<std::string> examples_in(const std::string& footer) {
  std::vector<std::string> examples;
  for (const std::string& line : split(footer, '\n'))
    if (line.starts_with("  ")) examples.push_back(line.substr(2));
  return examples;
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry{.names = {}, .value = {}, .help = option.get_description()};
  entry.is_argument = option.get_positional() && option.get_lnames().empty() && option.get_snames().empty();
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  if (entry.is_argument) entry.names.push_back(option.get_name());
  const bool is_flag = option.get_items_expected_max() == 0;
  if (!is_flag && !entry.is_argument) entry.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  return entry;
}

void add_commands_of(const CLI::App& app, const std::string& name, std::vector<CommandEntry>& table) {
  CommandEntry entry{name, app.get_description(), {}, examples_in(app.get_footer())};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) entry.options.push_back(entry_of(*option));
  table.push_back(std::move(entry));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty())
      add_commands_of(*command, name.empty() ? command->get_name() : name + " " + command->get_name(), table);
}

}  // namespace

std::vector<CommandEntry> command_table(const CLI::App& app) {
  std::vector<CommandEntry> table;
  add_commands_of(app, "", table);
  return table;
}

std::vector<std::string> values_of_type(const std::string& type) {
  if (type.starts_with("true or false")) return {"true", "false"};
  constexpr std::string_view kOneOf = "one of ";
  if (!type.starts_with(kOneOf)) return {};
  std::vector<std::string> values;
  for (std::string value : split(type.substr(kOneOf.size()), ',')) {
    value.erase(0, value.find_first_not_of(' '));
    values.push_back(value.substr(0, value.find(' ')));  // the last may be followed by: or "auto"
  }
  return values;
}

}  // namespace nought
