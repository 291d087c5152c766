// HelpFormatter: the text of --help, as wide as the terminal.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace nought {

class HelpFormatter final : public CLI::Formatter {
 public:
  /// width: the columns of the terminal; 0: there is no limit.
  explicit HelpFormatter(int width);
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  /// Lines of a command that are too long are broken before an option, so that a shell still takes them.
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const;

  int width_;
};

}  // namespace nought
