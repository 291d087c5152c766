#include "nought/cli/help_formatter.h"

#include <algorithm>
#include <sstream>

#include "nought/base/lines.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr int kNameColumns = 34, kLeastDescription = 16;

/// "  nought train run.json --ranks 2" in lines of at most `width` columns, where it has options to be broken at.
std::string break_command(std::string line, int width) {
  constexpr size_t kIndent = 6;
  std::string text;
  while (columns_of(line) > width) {
    const size_t option = line.rfind(" --", static_cast<size_t>(std::max(width - 2, 0)));
    if (option == std::string::npos || option < kIndent) break;
    text += line.substr(0, option) + " \\\n";
    line = std::string(kIndent, ' ') + line.substr(option + 1);
  }
  return text + line;
}

}  // namespace

HelpFormatter::HelpFormatter(int width) : width_(width) {
  column_width(static_cast<size_t>(width > 0 ? std::min(kNameColumns, width * 2 / 5) : kNameColumns));
}

std::string HelpFormatter::entry(const std::string& name, const std::string& description) const {
  const auto column = static_cast<int>(get_column_width());
  std::ostringstream out;
  CLI::detail::format_help(out, width_ > 0 ? wrap(name, width_ - 2, 4) : name,
                           wrap(description, width_ > 0 ? std::max(width_ - column, kLeastDescription) : 0),
                           get_column_width());
  // The padding of an empty name column is no text.
  std::string text;
  for (std::string& line : split(out.str(), '\n')) {
    line.resize(line.find_last_not_of(' ') + 1);
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return wrap(CLI::Formatter::make_description(app), width_);
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return wrap(CLI::Formatter::make_usage(app, std::move(name)), width_, 4);
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string text;
  for (const std::string& line : split(app->get_footer(), '\n'))
    text += (line.starts_with("  ") && width_ > 0 ? break_command(line, width_) : wrap(line, width_)) + "\n";
  return app->get_footer().empty() ? "" : text;
}

}  // namespace nought
