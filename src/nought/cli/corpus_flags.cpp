#include "nought/cli/corpus_flags.h"

#include <chrono>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/cli/launch_job.h"
#include "nought/io/atomic_file.h"
#include "nought/observe/live_line.h"

namespace nought {

namespace fs = std::filesystem;

CorpusFolderOptions CorpusFlags::folders() const {
  CorpusFolderOptions options{
      .folder = output, .shard_bytes = parse_bytes(shard_size, "--shard-size"), .overwrite = overwrite};
  if (!rejected.empty()) options.rejected = rejected;
  require<ConfigError>(!options.rejected || fs::weakly_canonical(*options.rejected) != fs::weakly_canonical(output),
                       "--rejected {}: is the output folder, too: give another", rejected);
  return options;
}

std::vector<fs::path> CorpusFlags::files() const {
  require<ConfigError>(threads > 0, "--threads must be positive, got {}", threads);
  std::vector<fs::path> outputs;
  for (const std::string& folder : {output, rejected})
    if (!folder.empty()) outputs.emplace_back(folder);
  return input_files(inputs, outputs);
}

Json CorpusFlags::settings(const std::string& command) const {
  return {{"command", command},
          {"field", documents.field},
          {"separator", documents.separator},
          {"rejected", rejected},
          {"shard_size", shard_size}};
}

void add_input_options(CLI::App& command, CorpusFlags& flags) {
  flags.threads = threads_per_rank();
  command.add_option("INPUT", flags.inputs, "Files, folders or globs: JSON lines or text, also .gz and .zst")
      ->required();
  command.add_option("--field", flags.documents.field, "JSON lines: the key that holds the text")
      ->capture_default_str();
  command
      .add_option("--separator", flags.documents.separator,
                  "Text: what separates documents; default: each file is one document")
      ->type_name("TEXT");
  command.add_option("--threads", flags.threads, "Number of threads; the result does not depend on it")->type_name("N");
}

void add_output_options(CLI::App& command, CorpusFlags& flags) {
  command.add_option("-o,--output", flags.output, "Folder to write: JSON lines, in shards")->required();
  command.add_option("--rejected", flags.rejected, "Folder for what is left out")->type_name("DIR");
  command.add_option("--shard-size", flags.shard_size, "About how large a file of the folder is")
      ->capture_default_str();
  command.add_flag("--overwrite", flags.overwrite, "Replace what the folders hold");
}

namespace {

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
        "{} of the documents that stay have another text; {} e-mail addresses and {} IP addresses were replaced\n",
        report.changed_documents, report.emails, report.addresses);
}

}  // namespace

fs::path write_report(const fs::path& folder, const Json& report) {
  const fs::path plain = (folder / "").lexically_normal().parent_path();
  const fs::path file = plain.string() + ".json";
  write_text_atomically(file, report.dump(2) + "\n");
  return file;
}

void clean_and_report(const CleanOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  LiveLine line(stdout, stdout_columns);
  const CleanReport report = clean(options, [&](const CleanProgress& progress) {
    line.show(fmt::format("{} read, {} documents", format_bytes(progress.file_bytes), progress.documents));
  });
  line.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_report(report, stdout_columns());
  const fs::path file = write_report(options.output.folder, to_json(report));
  fmt::print("{}: {} documents in {:.1f} s ({} of text); {} has these numbers\n", options.output.folder.string(),
             report.kept_documents, seconds, format_rate(static_cast<double>(report.bytes) / seconds, "B/s"),
             file.string());
}

}  // namespace nought
