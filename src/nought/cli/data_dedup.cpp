// nought data dedup and decontaminate: the commands that leave out what occurs elsewhere.
#include <chrono>
#include <memory>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/cli/corpus_flags.h"
#include "nought/cli/data_commands.h"
#include "nought/cli/launch_job.h"
#include "nought/corpus/decontaminate.h"
#include "nought/corpus/dedup.h"
#include "nought/data/token_folder.h"
#include "nought/observe/live_line.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

struct DedupFlags {
  CorpusFlags corpus;
  bool exact = false, minhash = false, lines = false;
  int64_t substring = 0;
  std::string keep = "first", memory = "2GiB";
  DedupOptions dedup;
};

DedupKind kind_of(const DedupFlags& flags) {
  const int kinds = flags.exact + flags.minhash + flags.lines + (flags.substring != 0);
  require<ConfigError>(kinds == 1, "give one of --exact, --minhash, --lines and --substring WORDS");
  if (flags.exact) return DedupKind::exact;
  if (flags.minhash) return DedupKind::minhash;
  return flags.lines ? DedupKind::lines : DedupKind::substring;
}

/// All that decides about the result, besides the inputs.
std::string settings_of(const DedupFlags& flags) {
  const MinHashOptions& minhash = flags.dedup.minhash;
  Json settings = flags.corpus.settings("dedup");
  settings["kind"] = static_cast<int>(flags.dedup.kind);
  settings["substring"] = flags.substring;
  settings["keep"] = flags.keep;
  settings["minhash"] = {minhash.ngram, minhash.bands, minhash.rows, minhash.bits, minhash.similarity};
  return settings.dump();
}

void print_dedup(const DedupReport& report, DedupKind kind) {
  const bool documents = kind == DedupKind::exact || kind == DedupKind::minhash;
  fmt::print("{} of {} documents and {} of {} of text stay; {} {} occurred before\n", report.kept_documents,
             report.documents, format_bytes(report.kept_bytes), format_bytes(report.bytes), report.repeated,
             documents                  ? "documents"
             : kind == DedupKind::lines ? "lines"
                                        : "words in such stretches");
  if (report.clusters > 0)
    fmt::print("{} groups of documents that are alike, the largest of {}\n", report.clusters, report.largest_cluster);
}

int run_dedup(DedupFlags& flags) {
  DedupOptions& options = flags.dedup;
  options.kind = kind_of(flags);
  options.substring_words = flags.substring == 0 ? 50 : flags.substring;
  require<ConfigError>(flags.keep == "first" || flags.keep == "longest", "--keep {}: expected first or longest",
                       flags.keep);
  options.keep_longest = flags.keep == "longest";
  require<ConfigError>(!options.keep_longest || options.kind == DedupKind::minhash,
                       "--keep longest is for --minhash: parts that are equal have one length");
  options.memory = parse_bytes(flags.memory, "--memory");
  options.inputs = flags.corpus.files();
  options.output = flags.corpus.folders();
  options.documents = flags.corpus.documents;
  options.threads = flags.corpus.threads;
  options.settings = settings_of(flags);

  const auto begin = std::chrono::steady_clock::now();
  LiveLine line(stdout, stdout_columns);
  const DedupReport report = dedup(options, [&](const char* phase, int64_t bytes) {
    line.show(fmt::format("{}: {} of the files", phase, format_bytes(bytes)));
  });
  line.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_dedup(report, options.kind);
  const fs::path file = write_report(options.output.folder, to_json(report));
  fmt::print("{}: {} documents in {:.1f} s ({} of text); {} has these numbers\n", flags.corpus.output,
             report.kept_documents, seconds, format_rate(static_cast<double>(report.bytes) / seconds, "B/s"),
             file.string());
  return 0;
}

struct DecontaminateFlags {
  CorpusFlags corpus;
  std::vector<std::string> against;
  int64_t ngram = 13;
};

int run_decontaminate(DecontaminateFlags& flags) {
  CleanOptions options;
  options.inputs = flags.corpus.files();
  options.output = flags.corpus.folders();
  options.documents = flags.corpus.documents;
  options.threads = flags.corpus.threads;
  auto filter = std::make_unique<BenchmarkFilter>(expand_data_files(flags.against), flags.ngram, options.documents);
  Json settings = flags.corpus.settings("decontaminate");
  settings["filter"] = filter->settings();
  options.settings = settings.dump();
  for (const BenchmarkFilter::Benchmark& each : filter->benchmarks())
    fmt::print("{}: {} items{}\n", each.name, each.items,
               each.too_short == 0 ? ""
                                   : fmt::format(", of which {} have fewer than {} words and are not looked for",
                                                 each.too_short, flags.ngram));
  options.filters.push_back(std::move(filter));
  clean_and_report(options);
  return 0;
}

}  // namespace

void add_data_dedup(CLI::App& data, Invocation& invocation) {
  CLI::App* command =
      add_command(data, "dedup", "Leaves out documents, lines or stretches of words that occurred before",
                  {"nought data dedup clean -o deduped --minhash",
                   "nought data dedup clean -o deduped --minhash --similarity 0 --keep longest",
                   "nought data dedup a.jsonl b.jsonl.gz -o deduped --substring 50 --memory 8GiB"});
  const auto flags = std::make_shared<DedupFlags>();
  MinHashOptions& minhash = flags->dedup.minhash;
  add_input_options(*command, flags->corpus);
  add_output_options(*command, flags->corpus);
  command->add_flag("--exact", flags->exact, "Documents with the same text");
  command->add_flag("--minhash", flags->minhash, "Documents that are nearly the same, by MinHash");
  command->add_flag("--lines", flags->lines, "Lines that occurred before in any document");
  command->add_option("--substring", flags->substring, "Stretches of at least so many words that occurred before")
      ->type_name("WORDS");
  command->add_option("--ngram", minhash.ngram, "--minhash: words of an n-gram")->capture_default_str();
  command->add_option("--bands", minhash.bands, "--minhash: bands; sharing one makes a pair")->capture_default_str();
  command->add_option("--rows", minhash.rows, "--minhash: minima of a band")->capture_default_str();
  command->add_option("--bits", minhash.bits, "--minhash: bits of a minimum, 32 or 64")->capture_default_str();
  command
      ->add_option(
          "--similarity", minhash.similarity,
          "--minhash: least share of all minima in which a pair agrees; 0: a shared band is enough, as for FineWeb")
      ->capture_default_str();
  command->add_option("--keep", flags->keep, "--minhash: which of a group stays, first or longest")
      ->capture_default_str();
  command->add_option("--memory", flags->memory, "Memory to use, at most; more is sorted in the output folder")
      ->capture_default_str();
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_dedup(*flags); }; });
}

void add_data_decontaminate(CLI::App& data, Invocation& invocation) {
  CLI::App* command = add_command(data, "decontaminate", "Leaves out documents that share words with benchmarks",
                                  {"nought data decontaminate clean -o train --against mmlu.jsonl gsm8k.jsonl",
                                   "nought data decontaminate clean -o train --against 'bench/*.jsonl' --ngram 10"});
  const auto flags = std::make_shared<DecontaminateFlags>();
  add_input_options(*command, flags->corpus);
  add_output_options(*command, flags->corpus);
  command->add_option("--against", flags->against, "Files of benchmarks; of records without --field all strings count")
      ->type_name("FILE...")
      ->required();
  command->add_option("--ngram", flags->ngram, "How many words in a row a document must share")->capture_default_str();
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_decontaminate(*flags); }; });
}

}  // namespace nought
