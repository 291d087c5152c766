#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/corpus_flags.h"
#include "nought/cli/data_commands.h"
#include "nought/corpus/clean.h"
#include "nought/corpus/language.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

struct CleanFlags {
  CorpusFlags corpus;
  std::string rules, language, personal_data = "keep", blocklist, normal_form;
  CleanOptions clean;
};

PersonalData personal_data_of(const std::string& name) {
  if (name == "keep") return PersonalData::keep;
  if (name == "redact") return PersonalData::redact;
  if (name == "drop") return PersonalData::drop;
  fail<ConfigError>("--pii {}: expected redact, drop or keep", name);
}

/// Reads "en,de:0.65".
void read_languages(const std::string& text, CleanOptions& options) {
  const std::vector<std::string> parts = split(text, ':');
  options.languages = split(parts[0], ',');
  for (const std::string& code : options.languages)
    require<ConfigError>(is_language(code),
                         "--language {}: libcld2 knows no language \"{}\"; codes are as en, de or zh", text, code);
  if (parts.size() == 1) return;
  char* end = nullptr;
  options.language_score = std::strtod(parts[1].c_str(), &end);
  require<ConfigError>(parts.size() == 2 && *end == '\0' && !parts[1].empty() && options.language_score >= 0 &&
                           options.language_score <= 1,
                       "--language {}: expected codes and the least part of the text, 0 to 1, as en:0.65", text);
}

std::string settings_of(const CleanFlags& flags) {
  Json settings = flags.corpus.settings("clean");
  for (const auto& filter : flags.clean.filters)
    settings["filters"].push_back({{std::string(filter->name()), filter->settings()}});
  settings["language"] = flags.language;
  settings["pii"] = flags.personal_data;
  settings["url_blocklist"] = flags.blocklist.empty() ? "" : identity_of({fs::path(flags.blocklist)});
  settings["url_field"] = flags.clean.url_field;
  settings["normalise"] = flags.normal_form;
  return settings.dump();
}

int run_clean(CleanFlags& flags) {
  CleanOptions& options = flags.clean;
  require<ConfigError>(flags.normal_form.empty() || flags.normal_form == "nfc", "--normalise {}: expected nfc",
                       flags.normal_form);
  if (!flags.rules.empty()) options.filters = read_filters(flags.rules);
  if (!flags.language.empty()) read_languages(flags.language, options);
  if (!flags.blocklist.empty()) options.blocklist.emplace(flags.blocklist);
  options.personal_data = personal_data_of(flags.personal_data);
  options.normal_form = flags.normal_form == "nfc";
  require<ConfigError>(!options.filters.empty() || options.blocklist || !options.languages.empty() ||
                           options.normal_form || options.personal_data != PersonalData::keep,
                       "nothing to do: give --rules, --language, --pii, --url-blocklist or --normalise");
  options.inputs = flags.corpus.files();
  options.output = flags.corpus.folders();
  options.documents = flags.corpus.documents;
  options.threads = flags.corpus.threads;
  options.settings = settings_of(flags);
  clean_and_report(options);
  return 0;
}

}  // namespace

void add_data_clean(CLI::App& data, Invocation& invocation) {
  CLI::App* command = add_command(
      data, "clean", "Keeps the documents of web text that pass rule sets, and says which rule took how many",
      {"nought data clean 'crawl/*.jsonl.gz' -o clean --rules gopher-repetition,gopher,c4,fineweb",
       "nought data clean crawl -o clean --language en:0.65 --pii redact --rejected rejected",
       "nought data clean pages.txt --separator '<|endoftext|>' -o clean --rules rules.json"});
  const auto flags = std::make_shared<CleanFlags>();
  add_input_options(*command, flags->corpus);
  add_output_options(*command, flags->corpus);
  command
      ->add_option("--rules", flags->rules,
                   fmt::format("Rule sets in their order: {}; or a file [{{\"rule\": NAME, KEY: VALUE}}, ...]",
                               fmt::join(filter_names(), ", ")))
      ->type_name("NAME,...|FILE.json");
  command->add_option("--language", flags->language, "Languages that stay, and the least part of the text in one")
      ->type_name("CODE,...:PART");
  command
      ->add_option("--pii", flags->personal_data, "E-mail and public IP addresses: redact, drop (the document) or keep")
      ->capture_default_str();
  command->add_option("--url-blocklist", flags->blocklist, "Hosts and addresses, one a line, whose documents go")
      ->type_name("FILE");
  command->add_option("--url-field", flags->clean.url_field, "JSON lines: the key that holds the address")
      ->capture_default_str();
  command->add_option("--normalise,--normalize", flags->normal_form, "nfc: Unicode's normal form C")->type_name("FORM");
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_clean(*flags); }; });
}

}  // namespace nought
