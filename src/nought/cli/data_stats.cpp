// nought data stats: what a corpus is made of.
#include <memory>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/cli/corpus_flags.h"
#include "nought/cli/data_commands.h"
#include "nought/cli/launch_job.h"
#include "nought/corpus/stats.h"
#include "nought/io/atomic_file.h"
#include "nought/observe/live_line.h"

namespace nought {

namespace {

struct StatsFlags {
  CorpusFlags corpus;
  std::string tokenizer, json;
};

void print_parts(const char* title, const std::vector<CorpusPart>& parts, const CorpusPart& all, bool tokens) {
  Table table{.ranks = {0, 3, 2, 1, 0},
              .rows = {{title, "documents", "bytes", "words", tokens ? "tokens" : "", "part"}}};
  const auto size = [&](const CorpusPart& part) { return static_cast<double>(tokens ? part.tokens : part.bytes); };
  for (const CorpusPart& part : parts)
    table.rows.push_back({part.name, fmt::format("{}", part.documents), format_bytes(part.bytes),
                          format_count(static_cast<double>(part.words)),
                          tokens ? format_count(static_cast<double>(part.tokens)) : "",
                          fmt::format("{:.1f}%", 100 * size(part) / std::max(size(all), 1.0))});
  fmt::print("{}", fit_table(table, stdout_columns()));
}

void print_stats(const CorpusStats& stats, bool tokens) {
  print_parts("source", stats.sources, stats.all, tokens);
  print_parts("language", stats.languages, stats.all, tokens);
  print_parts("", {stats.all}, stats.all, tokens);
  std::string lengths = tokens ? "tokens of a document:" : "words of a document:";
  for (const LengthQuantile& each : stats.lengths)
    lengths += fmt::format("  {:g}% up to {}", 100 * each.part, each.length);
  fmt::print("{}\n", wrap(lengths, stdout_columns(), 2));
}

int run_stats(StatsFlags& flags) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!flags.tokenizer.empty()) tokenizer = make_tokenizer(flags.tokenizer);
  LiveLine line(stdout, stdout_columns);
  const CorpusStats stats =
      corpus_stats(flags.corpus.files(), flags.corpus.documents, tokenizer.get(), flags.corpus.threads,
                   [&](int64_t bytes) { line.show(fmt::format("{} read", format_bytes(bytes))); });
  line.clear();
  print_stats(stats, tokenizer != nullptr);
  if (!flags.json.empty()) write_text_atomically(flags.json, to_json(stats).dump(2) + "\n");
  return 0;
}

}  // namespace

void add_data_stats(CLI::App& data, Invocation& invocation) {
  CLI::App* command = add_command(data, "stats", "Counts documents, words, tokens, languages and lengths of a corpus",
                                  {"nought data stats clean",
                                   "nought data stats 'a/*.jsonl' 'b/*.jsonl.zst' --tokenizer "
                                   "MODEL_DIR --json stats.json"});
  const auto flags = std::make_shared<StatsFlags>();
  add_input_options(*command, flags->corpus);
  command->add_option("--tokenizer", flags->tokenizer, "Count tokens, too; as data.tokenizer of a run");
  command->add_option("--json", flags->json, "Write the numbers to this file")->type_name("FILE");
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_stats(*flags); }; });
}

}  // namespace nought
