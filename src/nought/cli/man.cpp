// nought man: the man pages of the program, one for each command and one for RUN.json.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/command_table.h"
#include "nought/config/config_reference.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

/// A text as roff takes it, on one line.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : one_line(text)) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  const bool is_request = escaped.starts_with('.') || escaped.starts_with('\'');
  return is_request ? "\\&" + escaped : escaped;
}

std::string page_name(const std::string& command) {
  std::string name = "nought" + (command.empty() ? "" : "-" + command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string head(const std::string& name, int section, const std::string& help) {
  return fmt::format(".TH \"{}\" {} \"\" nought\n.SH NAME\n{} \\- {}\n", roff(name), section, roff(name), roff(help));
}

std::string synopsis(const CommandEntry& command) {
  std::string line = fmt::format(".B nought {}\n", roff(command.name));
  if (command.name.empty()) return line + ".I COMMAND\n";
  line += "[OPTIONS]\n";
  for (const OptionEntry& option : command.options)
    if (option.is_argument) line += fmt::format(".I {}\n", roff(option.names.front()));
  return line;
}

std::string option_text(const OptionEntry& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + roff(name);
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", names,
                     option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR", roff(option.help));
}

}  // namespace

std::string man_page(const CommandEntry& command, const std::vector<CommandEntry>& all) {
  std::string page = head(page_name(command.name), 1, command.help) + ".SH SYNOPSIS\n" + synopsis(command);
  std::string commands, see;
  const std::string begin = command.name.empty() ? "" : command.name + " ";
  for (const CommandEntry& each : all) {
    const bool is_below = !each.name.empty() && each.name != command.name && each.name.starts_with(begin);
    if (is_below && each.name.find(' ', begin.size()) == std::string::npos)
      commands += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(each.name)), roff(each.help));
  }
  if (!commands.empty()) page += ".SH COMMANDS\n" + commands;
  if (!command.options.empty()) page += ".SH OPTIONS\n";
  for (const OptionEntry& option : command.options) page += option_text(option);
  if (!command.examples.empty()) page += ".SH EXAMPLES\n.nf\n";
  for (const std::string& example : command.examples) page += roff(example) + "\n";
  if (!command.examples.empty()) page += ".fi\n";
  return page + ".SH SEE ALSO\n.BR " + (command.name.empty() ? "" : "nought (1), ") + "nought\\-run.json (5)\n";
}

std::string man_page_of_run_file() {
  std::string page = head("nought-run.json", 5, "the configuration of a run: RUN.json and ds_config.json") +
                     ".SH DESCRIPTION\nKeys by their paths. JSON may have comments and trailing commas.\n.SH KEYS\n";
  for (const ConfigEntry& entry : config_reference()) {
    const char* use = entry.use == KeyUse::implemented ? ""
                      : entry.use == KeyUse::no_effect ? "has no effect: "
                                                       : "refused: ";
    page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(entry.path),
                        roff(use + entry.help + (entry.type.empty() ? "" : " (" + entry.type + ")") +
                             (entry.fallback.empty() ? "" : "; default " + entry.fallback)));
  }
  return page + ".SH SEE ALSO\n.BR nought (1), nought\\-config (1)\n";
}

void add_man(CLI::App& app, Invocation& invocation) {
  struct Options {
    std::vector<std::string> words;
    std::string folder;
  };
  CLI::App* command = add_command(
      app, "man", "Prints the man page of a command or of RUN.json, or writes all of them",
      {"nought man train | man -l -", "nought man run.json | man -l -", "nought man --output ~/.local/share/man"});
  const auto options = std::make_shared<Options>();
  command->add_option("COMMAND", options->words, "The command, or run.json; default: the page of the program");
  command->add_option("--output", options->folder, "Write all pages below this folder, in man1 and man5")
      ->type_name("DIR");
  command->callback([&app, &invocation, options] {
    invocation.action = [&app, options] {
      const std::vector<CommandEntry> all = command_table(app);
      if (!options->folder.empty()) {
        const std::filesystem::path folder(options->folder);
        for (const char* section : {"man1", "man5"}) std::filesystem::create_directories(folder / section);
        for (const CommandEntry& each : all)
          write_text_atomically(folder / "man1" / (page_name(each.name) + ".1"), man_page(each, all));
        write_text_atomically(folder / "man5/nought-run.json.5", man_page_of_run_file());
        return 0;
      }
      const std::string name = fmt::format("{}", fmt::join(options->words, " "));
      const auto found =
          std::find_if(all.begin(), all.end(), [&](const CommandEntry& each) { return each.name == name; });
      require<ConfigError>(found != all.end() || name == "run.json", "no man page for \"{}\"; see `nought --help`",
                           name);
      fmt::print("{}", name == "run.json" ? man_page_of_run_file() : man_page(*found, all));
      return 0;
    };
  });
}

}  // namespace nought
