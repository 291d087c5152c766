// nought config: every key of RUN.json and ds_config.json, searched or as the page docs/config.md.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/launch_job.h"
#include "nought/config/config_reference.h"

namespace nought {

namespace {

/// The nearest name of a key, as a hint.
std::string near_key(const std::string& word) {
  std::vector<std::string> names;
  for (const ConfigEntry& entry : config_reference()) names.push_back(entry.path.substr(entry.path.rfind('.') + 1));
  return did_you_mean(word, names);
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  struct Options {
    std::string filter;
    bool markdown = false;
  };
  CLI::App* command = add_command(app, "config", "Shows every key of RUN.json and ds_config.json: default, meaning",
                                  {"nought config", "nought config scheduler", "nought config --markdown"});
  const auto options = std::make_shared<Options>();
  command->add_option("WORD", options->filter, "Only keys whose name or meaning contains it");
  command->add_flag("--markdown", options->markdown, "Print docs/config.md");
  command->callback([&invocation, options] {
    invocation.action = [options] {
      require<ConfigError>(options->filter.empty() || !options->markdown, "--markdown prints the whole page: no WORD");
      const std::string text = options->markdown ? config_markdown() : config_text(options->filter);
      if (text.empty())
        fail<ConfigError>("no key contains \"{}\"{}: see `nought config`", options->filter, near_key(options->filter));
      fmt::print("{}", options->markdown ? text : wrap(text, stdout_columns(), 4));
      return 0;
    };
  });
}

}  // namespace nought
