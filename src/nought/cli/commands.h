// The subcommands. Each adds itself to the command line, and sets what the program does when it is chosen.
//
// To add one, write src/nought/cli/NAME.cpp with add_NAME(), and add its line here and in commands.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace nought {

struct Context;

/// One run of the program: its arguments, without the program's name, and the action that the chosen subcommand sets.
struct Invocation {
  std::vector<std::string> arguments;
  std::function<int()> action;  // returns the exit code; set by the chosen subcommand's callback
  /// A context on a GPU, by its number or for the rank of this number on the host; null if the program has no CUDA.
  Context (*on_gpu)(int number, bool is_rank) = nullptr;
};

/// Adds a subcommand. --help shows its description first and its examples, one per line, last.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::vector<std::string>& examples);

/// Adds --set KEY=VALUE, any number of them.
void add_override_option(CLI::App& command, std::vector<std::string>& overrides, const std::string& example);

/// Adds every subcommand.
void add_commands(CLI::App& app, Invocation& invocation);

void add_train(CLI::App& app, Invocation& invocation);
void add_check(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_simulate(CLI::App& app, Invocation& invocation);
void add_tune(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_probe(CLI::App& app, Invocation& invocation);
void add_trace(CLI::App& app, Invocation& invocation);
void add_tokenize(CLI::App& app, Invocation& invocation);
void add_data(CLI::App& app, Invocation& invocation);
void add_eval(CLI::App& app, Invocation& invocation);
void add_score(CLI::App& app, Invocation& invocation);
void add_embed(CLI::App& app, Invocation& invocation);
void add_generate(CLI::App& app, Invocation& invocation);
void add_chat(CLI::App& app, Invocation& invocation);
void add_serve(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_convert(CLI::App& app, Invocation& invocation);
void add_quantize(CLI::App& app, Invocation& invocation);
void add_bench(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_top(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_bisect(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_info(CLI::App& app, Invocation& invocation);
void add_init(CLI::App& app, Invocation& invocation);
void add_completion(CLI::App& app, Invocation& invocation);
void add_man(CLI::App& app, Invocation& invocation);
void add_help(CLI::App& app, Invocation& invocation);

/// The message for a command line that cannot be parsed: one line, with the nearest known option or command.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error);

}  // namespace nought
