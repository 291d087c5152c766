// nought completion: scripts that complete the command line in bash, zsh and fish.
#include <memory>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/command_table.h"
#include "nought/config/config_reference.h"

namespace nought {

namespace {

std::vector<std::string> words_of(const CommandEntry& command) {
  std::vector<std::string> words;
  for (const OptionEntry& option : command.options)
    if (!option.is_argument) words.insert(words.end(), option.names.begin(), option.names.end());
  return words;
}

/// The names of the commands that follow one: those of the program for "".
std::vector<const CommandEntry*> commands_of(const std::vector<CommandEntry>& all, const std::string& name) {
  std::vector<const CommandEntry*> found;
  const std::string begin = name.empty() ? "" : name + " ";
  for (const CommandEntry& each : all)
    if (!each.name.empty() && each.name.starts_with(begin) && each.name.find(' ', begin.size()) == std::string::npos)
      found.push_back(&each);
  return found;
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

std::string joined_names(const std::vector<const CommandEntry*>& commands) {
  std::string names;
  for (const CommandEntry* each : commands) names += (names.empty() ? "" : " ") + last_word(each->name);
  return names;
}

/// The keys that have a meaning here, and the cases of a shell's `case` for those with a list of values.
struct Keys {
  std::vector<std::string> all;
  std::vector<std::pair<std::string, std::string>> values;
};
Keys keys_of_run() {
  Keys keys;
  for (const ConfigEntry& entry : config_reference()) {
    if (entry.use != KeyUse::implemented) continue;
    keys.all.push_back(entry.path);
    if (const auto values = values_of_type(entry.type); !values.empty())
      keys.values.emplace_back(entry.path, fmt::format("{}", fmt::join(values, " ")));
  }
  return keys;
}

std::string quoted(std::string text) {
  for (size_t at = text.find('\''); at != std::string::npos; at = text.find('\'', at + 4)) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

/// The lines `NAME) options="..." commands="..." ;;` of every command.
std::string cases_of(const std::vector<CommandEntry>& commands) {
  std::string cases;
  for (const CommandEntry& each : commands)
    cases += fmt::format("    {}) options={} commands={} ;;\n", quoted(each.name),
                         quoted(fmt::format("{}", fmt::join(words_of(each), " "))),
                         quoted(joined_names(commands_of(commands, each.name))));
  return cases;
}

std::string cases_of_values(const Keys& keys) {
  std::string cases;
  for (const auto& [key, values] : keys.values) cases += fmt::format("    {}) values='{}' ;;\n", key, values);
  return cases;
}

/// What bash and zsh share: it sets options and commands of the words before the cursor, and values of a key.
std::string shell_functions(const std::vector<CommandEntry>& commands) {
  const Keys keys = keys_of_run();
  return fmt::format(
      "_nought_keys='{}'\n\n"
      "_nought_command() {{\n  options= commands=\n  case $1 in\n{}  esac\n}}\n\n"
      "_nought_values() {{\n  values=\n  case $1 in\n{}  esac\n}}\n\n",
      fmt::join(keys.all, " "), cases_of(commands), cases_of_values(keys));
}

}  // namespace

std::string bash_completion(const std::vector<CommandEntry>& commands) {
  return "# Completion of nought for bash. Written by `nought completion bash`.\n" + shell_functions(commands) +
         R"bash(_nought() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} name= options commands values word
  _nought_command ''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ " $commands " == *" $word "* ]] || break
    name="${name:+$name }$word"
    _nought_command "$name"
  done
  COMPREPLY=()
  if [[ $current == = ]]; then before='=' current=; fi
  if [[ $before == = && ${COMP_WORDS[*]} == *" --set "* ]]; then
    local at=$((COMP_CWORD - 1))
    [[ ${COMP_WORDS[COMP_CWORD]} == = ]] || at=$((COMP_CWORD - 2))
    _nought_values "${COMP_WORDS[at]}"
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ $before == --set ]]; then
    COMPREPLY=($(compgen -S = -W "$_nought_keys" -- "$current"))
    compopt -o nospace
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n $commands ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
    compopt -o filenames
  fi
}
complete -F _nought nought
)bash";
}

std::string zsh_completion(const std::vector<CommandEntry>& commands) {
  return "#compdef nought\n# Completion of nought for zsh. Written by `nought completion zsh`.\n" +
         shell_functions(commands) +
         R"zsh(_nought() {
  local name= options commands values word key
  _nought_command ''
  for word in ${words[2,CURRENT-1]}; do
    [[ " $commands " == *" $word "* ]] || break
    name="${name:+$name }$word"
    _nought_command "$name"
  done
  if [[ ${words[CURRENT-1]} == --set && $PREFIX == *=* ]]; then
    key=${PREFIX%%=*}
    _nought_values "$key"
    compset -P '*='
    compadd -- ${=values}
  elif [[ ${words[CURRENT-1]} == --set ]]; then
    compadd -S = -- ${=_nought_keys}
  elif [[ $PREFIX == -* ]]; then
    compadd -- ${=options}
  elif [[ -n $commands ]]; then
    compadd -- ${=commands}
  else
    _files
  fi
}
if [[ $funcstack[1] == _nought ]]; then _nought "$@"; else compdef _nought nought; fi
)zsh";
}

std::string fish_completion(const std::vector<CommandEntry>& commands) {
  std::string script = "# Completion of nought for fish. Written by `nought completion fish`.\n";
  for (const CommandEntry& each : commands) {
    std::string condition = "__fish_use_subcommand";
    if (!each.name.empty()) condition = "true";
    for (const std::string& word : each.name.empty() ? std::vector<std::string>() : split(each.name, ' '))
      condition += "; and __fish_seen_subcommand_from " + word;
    const std::string line = fmt::format("complete -c nought -n {}", quoted(condition));
    for (const CommandEntry* command : commands_of(commands, each.name))
      script += fmt::format("{} -f -a {} -d {}\n", line, last_word(command->name), quoted(command->help));
    for (const OptionEntry& option : each.options) {
      if (option.is_argument) continue;
      script += line;
      for (const std::string& name : option.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      script += fmt::format("{} -d {}\n",
                            option.value.empty()          ? ""
                            : option.value == "KEY=VALUE" ? " -x -a '(_nought_keys)'"
                                                          : " -r",
                            quoted(option.help));
    }
  }
  const Keys keys = keys_of_run();
  script += fmt::format("function _nought_keys\n  printf '%s=\\n' {}\n", fmt::join(keys.all, " "));
  for (const auto& [key, values] : keys.values) script += fmt::format("  printf '{}=%s\\n' {}\n", key, values);
  return script + "end\n";
}

void add_completion(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "completion", "Prints a script that completes commands, options and keys in a shell",
                  {"nought completion bash >~/.local/share/bash-completion/completions/nought",
                   "nought completion fish >~/.config/fish/completions/nought.fish"});
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([&app, &invocation, shell] {
    invocation.action = [&app, shell] {
      const std::vector<CommandEntry> commands = command_table(app);
      require<ConfigError>(*shell == "bash" || *shell == "zsh" || *shell == "fish",
                           "no completion for the shell \"{}\"; expected bash, zsh or fish", *shell);
      fmt::print("{}", *shell == "bash"  ? bash_completion(commands)
                       : *shell == "zsh" ? zsh_completion(commands)
                                         : fish_completion(commands));
      return 0;
    };
  });
}

}  // namespace nought
