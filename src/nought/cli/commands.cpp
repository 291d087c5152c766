#include "nought/cli/commands.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/trainer_flags.h"

namespace nought {

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::vector<std::string>& examples) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(fmt::format("\nExamples:\n  {}", fmt::join(examples, "\n  ")));
  return command;
}

void add_override_option(CLI::App& command, std::vector<std::string>& overrides, const std::string& example) {
  command.add_option("--set", overrides, "Override a value of RUN.json, for instance " + example)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

void add_commands(CLI::App& app, Invocation& invocation) {
  app.require_subcommand(0, 1);  // what follows a command is its own, also where it is called like another command
  add_train(app, invocation);
  add_check(app, invocation);
  add_plan(app, invocation);
  add_simulate(app, invocation);
  add_tune(app, invocation);
  add_doctor(app, invocation);
  add_probe(app, invocation);
  add_trace(app, invocation);
  add_tokenize(app, invocation);
  add_data(app, invocation);
  add_eval(app, invocation);
  add_score(app, invocation);
  add_embed(app, invocation);
  add_generate(app, invocation);
  add_chat(app, invocation);
  add_serve(app, invocation);
  add_config(app, invocation);
  add_convert(app, invocation);
  add_quantize(app, invocation);
  add_bench(app, invocation);
  add_report(app, invocation);
  add_top(app, invocation);
  add_compare(app, invocation);
  add_bisect(app, invocation);
  add_verify(app, invocation);
  add_info(app, invocation);
  add_init(app, invocation);
  add_completion(app, invocation);
  add_man(app, invocation);
  add_help(app, invocation);
}

namespace {

bool looks_like_option(const std::string& text) { return text.size() > 1 && text[0] == '-'; }

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(fmt::format("--{}", name));
    for (const std::string& name : option->get_snames()) names.push_back(fmt::format("-{}", name));
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// What other programs, and people, call what a command does.
constexpr std::pair<std::string_view, std::string_view> kMeant[] = {
    {"finetune", "init finetune"}, {"fine-tune", "init finetune"}, {"server", "serve"},   {"sft", "init finetune"},
    {"pretrain", "init pretrain"}, {"resume", "train --resume"},   {"export", "convert"}, {"run", "chat"},
    {"infer", "generate"},         {"inference", "generate"},      {"evaluate", "eval"},  {"estimate", "plan"},
    {"validate", "check"},         {"benchmark", "bench"},         {"profile", "trace"},  {"show", "info"}};

/// " (did you mean ...?)": the command that has that name elsewhere, and the one whose name is near; "" if none is.
std::string meant_command(const std::string& name, const CLI::App& app) {
  const auto meant = std::find_if(std::begin(kMeant), std::end(kMeant), [&](const auto& each) {
    return each.first == name || (name.size() > 4 && edit_distance(each.first, name) <= 1);
  });
  const std::string near = nearest_name(name, command_names(app));
  if (meant == std::end(kMeant)) return near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near);
  const bool same = near.empty() || meant->second.starts_with(near);
  return fmt::format(" (did you mean \"{}\"{}?)", meant->second, same ? "" : fmt::format(" or \"{}\"", near));
}

/// The help of a command ("bench", "step"), or the overview. ConfigError for a command that is not there.
std::string help_of(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  const CLI::App* command = &app;
  std::string before;
  const auto any = [](const CLI::App*) { return true; };
  for (const std::string& word : words) {
    if (command->get_subcommands(any).empty()) break;  // what follows are its arguments, as in "init finetune"
    const auto found = command->get_subcommands([&](const CLI::App* each) { return each->get_name() == word; });
    before += (before.empty() ? "" : " ") + command->get_name();
    require<ConfigError>(!found.empty(), "unknown command {}{}; see `{} --help`", word, meant_command(word, *command),
                         before);
    command = found.front();
  }
  return command->help(before);
}

std::string unknown_option(const std::string& argument, const CLI::App& command) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> names = option_names(command);
  for (std::string& flag : trainer_flag_names(command)) names.push_back(std::move(flag));
  return fmt::format("unknown option {}{}", name, did_you_mean(name, names));
}

}  // namespace

void add_help(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "help", "Shows all commands, or one of them with its options",
                                  {"nought help", "nought help train", "nought help bench step"});
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *words, "The command to show");
  command->callback([&app, &invocation, words] {
    invocation.action = [&app, words] {
      fmt::print("{}", help_of(app, *words));
      return 0;
    };
  });
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string help =
      fmt::format("; see `{}`", chosen.empty() ? "nought --help" : "nought " + command.get_name() + " --help");
  const std::vector<std::string> extras = app.remaining(true);
  if (chosen.empty() && !extras.empty() && !looks_like_option(extras.front())) {
    return fmt::format("unknown command {}{}{}", extras.front(), meant_command(extras.front(), app), help);
  }
  // A misspelt option is the cause of whatever else is missing, so it is named first.
  const auto option = std::find_if(extras.begin(), extras.end(), looks_like_option);
  if (option != extras.end()) return unknown_option(*option, command) + help;
  if (!extras.empty() && !command.get_subcommands([](const CLI::App*) { return true; }).empty())
    return fmt::format("unknown command {} {}{}{}", command.get_name(), extras.front(),
                       did_you_mean(extras.front(), command_names(command)), help);
  if (!extras.empty()) return fmt::format("unexpected argument {}{}", extras.front(), help);
  std::string message = error.what();
  constexpr std::string_view kNoNumber = "Could not convert: ";  // numbers alone are
  if (const size_t value = message.find(" = "); message.starts_with(kNoNumber) && value != message.npos)
    return fmt::format("{}: expected a number, found \"{}\"{}",
                       message.substr(kNoNumber.size(), value - kNoNumber.size()), message.substr(value + 3), help);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + help;
}

}  // namespace nought
