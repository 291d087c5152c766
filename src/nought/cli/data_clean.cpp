#include "nought/cli/data_clean.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include <fmt/ranges.h>

#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/cli/launch_job.h"
#include "nought/corpus/clean.h"
#include "nought/corpus/language.h"
#include "nought/io/atomic_file.h"
#include "nought/observe/live_line.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

struct CleanFlags {
  std::vector<std::string> inputs;
  std::string output, rules, language, personal_data = "keep", blocklist, normal_form, rejected, shard_size = "256MiB";
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

/// All that decides about the result, besides the inputs.
std::string settings_of(const CleanFlags& flags) {
  Json filters = Json::array();
  for (const auto& filter : flags.clean.filters) filters.push_back({{std::string(filter->name()), filter->settings()}});
  std::string blocklist = flags.blocklist;
  if (!blocklist.empty()) blocklist = identity_of({fs::path(blocklist)});
  const DocumentOptions& documents = flags.clean.documents;
  return Json{{"command", "clean"},
              {"filters", filters},
              {"language", flags.language},
              {"pii", flags.personal_data},
              {"url_blocklist", blocklist},
              {"normalise", flags.normal_form},
              {"rejected", flags.rejected},
              {"field", documents.field},
              {"separator", documents.separator},
              {"shard_size", flags.shard_size}}
      .dump();
}

void print_report(const CleanReport& report, int width) {
  const auto row = [&](const std::string& name, int64_t documents, int64_t bytes) {
    const double part = static_cast<double>(documents) / static_cast<double>(std::max<int64_t>(report.documents, 1));
    return std::vector<std::string>{name, fmt::format("{}", documents), fmt::format("{:.1f}%", 100 * part),
                                    format_bytes(bytes)};
  };
  Table table{.ranks = {0, 2, 1}, .rows = {{"", "documents", "part", "bytes"}}};
  table.rows.push_back(row("read", report.documents, report.bytes));
  for (const CleanReason& each : report.rejected)
    table.rows.push_back(row(each.rule + ": " + each.reason, each.documents, each.bytes));
  table.rows.push_back(row("kept", report.kept_documents, report.kept_bytes));
  fmt::print("{}", fit_table(table, width));
  for (const CleanReason& each : report.rejected) {
    fmt::print("{}: {}\n", each.rule, each.reason);
    for (const std::string& example : each.examples) fmt::print("{}\n", wrap("  " + example, width, 4));
  }
  if (report.changed_documents > 0)
    fmt::print(
        "{} of the documents that stay have another text: {} e-mail addresses and {} IP addresses were replaced\n",
        report.changed_documents, report.emails, report.addresses);
}

/// The file beside a folder with what was counted: DIR.json.
fs::path report_path(const fs::path& folder) {
  const fs::path plain = (folder / "").lexically_normal().parent_path();
  return plain.string() + ".json";
}

int run_clean(CleanFlags& flags) {
  CleanOptions& options = flags.clean;
  require<ConfigError>(options.threads > 0, "--threads must be positive, got {}", options.threads);
  require<ConfigError>(flags.normal_form.empty() || flags.normal_form == "nfc", "--normalise {}: expected nfc",
                       flags.normal_form);
  if (!flags.rules.empty()) options.filters = read_filters(flags.rules);
  if (!flags.language.empty()) read_languages(flags.language, options);
  if (!flags.blocklist.empty()) options.blocklist.emplace(flags.blocklist);
  options.personal_data = personal_data_of(flags.personal_data);
  options.normal_form = flags.normal_form == "nfc";
  options.output.shard_bytes = parse_bytes(flags.shard_size, "--shard-size");
  options.output.folder = flags.output;
  std::vector<fs::path> outputs{flags.output};
  if (!flags.rejected.empty()) outputs.emplace_back(options.output.rejected.emplace(flags.rejected));
  require<ConfigError>(!options.filters.empty() || options.blocklist || !options.languages.empty() ||
                           options.normal_form || options.personal_data != PersonalData::keep,
                       "nothing to do: give --rules, --language, --pii, --url-blocklist or --normalise");
  options.inputs = input_files(flags.inputs, outputs);
  options.settings = settings_of(flags);

  const auto begin = std::chrono::steady_clock::now();
  LiveLine line(stdout, stdout_columns);
  const CleanReport report = clean(options, [&](const CleanProgress& progress) {
    line.show(fmt::format("{} read, {} documents", format_bytes(progress.file_bytes), progress.documents));
  });
  line.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_report(report, stdout_columns());
  const fs::path file = report_path(flags.output);
  write_text_atomically(file, to_json(report).dump(2) + "\n");
  fmt::print("{}: {} documents in {:.1f} s ({} of text); {} has these numbers\n", flags.output, report.kept_documents,
             seconds, format_rate(static_cast<double>(report.bytes) / seconds, "B/s"), file.string());
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
  CleanOptions& options = flags->clean;
  options.threads = threads_per_rank();
  command->add_option("INPUT", flags->inputs, "Files, folders or globs: JSON lines or text, also .gz and .zst")
      ->required();
  command->add_option("-o,--output", flags->output, "Folder to write: JSON lines, in shards")->required();
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
  command->add_option("--url-field", options.url_field, "JSON lines: the key that holds the address")
      ->capture_default_str();
  command->add_option("--normalise,--normalize", flags->normal_form, "nfc: Unicode's normal form C")->type_name("FORM");
  command->add_option("--rejected", flags->rejected, "Folder for what is left out, with rule and reason")
      ->type_name("DIR");
  command->add_option("--field", options.documents.field, "JSON lines: the key that holds the text")
      ->capture_default_str();
  command
      ->add_option("--separator", options.documents.separator,
                   "Text: what separates documents; default: each file is one document")
      ->type_name("TEXT");
  command->add_option("--shard-size", flags->shard_size, "About how large a file of the folder is")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Number of threads; the result does not depend on it")
      ->type_name("N");
  command->add_flag("--overwrite", options.output.overwrite, "Replace what the folders hold");
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_clean(*flags); }; });
}

}  // namespace nought
