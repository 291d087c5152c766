// nought tokenize: text to a folder of token files, which a run reads without encoding anything again.
#include "nought/data/tokenize.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/launch_job.h"
#include "nought/data/count_words.h"
#include "nought/data/token_folder.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/io/text_file.h"
#include "nought/observe/live_line.h"

namespace nought {

namespace {

struct TokenizeFlags {
  std::vector<std::string> inputs;
  std::string tokenizer, output, format, separator, chat_template;
  TokenizeOptions tokenize;
  bool train_bpe = false;
  std::optional<int64_t> vocab_size;
  std::vector<std::string> markers{"<|endoftext|>"};
  std::vector<std::string> add_special_tokens;
  std::string pattern = "gpt2";
  std::string left_out = {};  // see describe_left_out()
};

/// The text that "\n", "\t" and "\\" spell.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const char meant = next == 'n' ? '\n' : next == 't' ? '\t' : next == '\\' ? '\\' : '\0';
    plain += meant ? meant : text[i];
    if (meant) ++i;
  }
  return plain;
}

std::optional<CorpusFormat> format_of(const TokenizeFlags& options) {
  if (options.format.empty()) return options.chat_template.empty() ? std::nullopt : std::optional(CorpusFormat::chat);
  if (const auto format = enum_named<CorpusFormat>(options.format)) return format;
  fail<ConfigError>("--format {}: expected text, jsonl or chat", options.format);
}

/// A bar for work whose size is known, redrawn a few times a second.
class Progress {
 public:
  /// done, of total: what the bar shows. kept: how much of it was there before. what: "1.20M tokens", or "".
  void show(int64_t done, int64_t total, int64_t kept, const std::string& of, const std::string& what,
            std::string_view unit) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    const double rate = static_cast<double>(done - kept) / std::chrono::duration<double>(now - begin_).count();
    const double part = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1));
    const std::string left = rate > 0 ? format_duration(static_cast<double>(total - done) / rate) : "?";
    line_.show(bar_line(
        part,
        {{fmt::format("{:5.1f}% {}", 100 * part, of), 0}, {what, 3}, {format_rate(rate, unit), 2}, {"ETA " + left, 1}},
        line_.width()));
  }
  void restart() { begin_ = std::chrono::steady_clock::now(); }
  void print(const std::string& line) { line_.print(line, 4); }
  void clear() { line_.clear(); }

 private:
  LiveLine line_{stdout, stdout_columns};
  std::chrono::steady_clock::time_point shown_, begin_ = std::chrono::steady_clock::now();
};

void print_summary(const TokenizeProgress& progress, const TokenizeFlags& options, Progress& line) {
  const std::string targets =
      progress.targets == progress.tokens
          ? ""
          : fmt::format(" ({} of them targets)", format_count(static_cast<double>(progress.targets)));
  line.print(fmt::format("{}: {} tokens{} of {} document{} in {} file{}", options.output,
                         format_count(static_cast<double>(progress.tokens)), targets, progress.documents,
                         progress.documents == 1 ? "" : "s", progress.files, progress.files == 1 ? "" : "s"));
  const int64_t made = progress.total_bytes - progress.kept_bytes;
  if (progress.kept_bytes > 0)
    line.print(fmt::format("{} of {} were there already", format_bytes(progress.kept_bytes),
                           format_bytes(progress.total_bytes)));
  if (made > 0)
    line.print(fmt::format("{} in {:.1f} s: {} on {} thread{}", format_bytes(made), progress.seconds,
                           format_rate(static_cast<double>(made) / progress.seconds, "B/s"), options.tokenize.threads,
                           options.tokenize.threads == 1 ? "" : "s"));
}

void encode_files(TokenizeFlags& options, Progress& line) {
  CorpusOptions& corpus = options.tokenize.corpus;
  const auto tokenizer = make_tokenizer(options.tokenizer, options.add_special_tokens);
  const auto& inputs = options.tokenize.inputs;
  corpus = with_template(corpus, inputs, options.chat_template, options.tokenizer, *tokenizer);
  std::vector<std::string> found = describe_formats(inputs, corpus, *tokenizer);
  if (!options.left_out.empty()) found.push_back(options.left_out);
  bool told = false;
  const auto show = [&](const TokenizeProgress& progress) {
    if (!std::exchange(told, true) && progress.removed_files > 0)
      found.push_back(
          fmt::format("{}: what an unfinished run left is removed ({} token file{}): it had another input, "
                      "tokenizer or options",
                      options.output, progress.removed_files, progress.removed_files == 1 ? "" : "s"));
    for (const std::string& note : std::exchange(found, {})) line.print("note: " + note);
    line.show(progress.bytes, progress.total_bytes, progress.kept_bytes, "of " + format_bytes(progress.total_bytes),
              format_count(static_cast<double>(progress.tokens)) + " tokens", "B/s");
  };
  print_summary(tokenize(options.tokenize, *tokenizer, show), options, line);
}

WordPattern pattern_of(const std::string& text) {
  if (const auto pattern = enum_named<WordPattern>(text)) return *pattern;
  fail<ConfigError>("--pattern {}: expected gpt2, cl100k, o200k or qwen2", text);
}

/// Trains a vocabulary and writes it as Hugging Face has it.
void train_tokenizer(const TokenizeFlags& options, Progress& line) {
  const std::filesystem::path folder = options.output, file = folder / "tokenizer.json";
  require<ConfigError>(options.tokenize.overwrite || !std::filesystem::exists(file),
                       "{}: is there already: --overwrite replaces it", file.string());
  const WordPattern pattern = pattern_of(options.pattern);
  const BpeTraining training{.vocab_size = options.vocab_size.value_or(0), .markers = options.markers};
  check_bpe_training(training);
  int64_t total = 0;
  for (const auto& input : options.tokenize.inputs) total += text_size(input);
  const WordCounts words =
      count_words(options.tokenize.inputs, options.tokenize.corpus, pattern, options.tokenize.threads,
                  [&](int64_t bytes) { line.show(bytes, total, 0, "of " + format_bytes(total) + " read", "", "B/s"); });
  line.restart();
  const TrainedBpe bpe = train_bpe(words, training, [&](int64_t merges) {
    line.show(merges, training.vocab_size, 0, "", fmt::format("{} merges", merges), "merges/s");
  });
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require<IoError>(!error, "cannot create --output {}: {}", folder.string(), error.message());
  write_text_atomically(file, tokenizer_json_of(bpe, training, pattern).dump(2) + "\n");
  const OrderedJson config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"eos_token", options.markers.front()},
                           {"clean_up_tokenization_spaces", false}};
  write_text_atomically(folder / "tokenizer_config.json", config.dump(2) + "\n");
  const auto trained = make_tokenizer(folder.string());
  line.print(fmt::format("{}: {} tokens, {} of them merges, from {} different words in {}", file.string(),
                         trained->vocab_size(), bpe.merges.size(), words.size(), format_bytes(total)));
  if (trained->vocab_size() < training.vocab_size)
    line.print(fmt::format("note: the text gives no {} tokens: no pair of neighbours is left that occurs twice",
                           training.vocab_size));
}

int run_tokenize(TokenizeFlags& options) {
  require<ConfigError>(options.tokenize.threads >= 1, "--threads must be at least 1, got {}", options.tokenize.threads);
  require<ConfigError>(options.tokenize.file_tokens >= 1, "--file-tokens must be at least 1, got {}",
                       options.tokenize.file_tokens);
  require<ConfigError>(options.train_bpe != !options.tokenizer.empty(),
                       "give --tokenizer, to encode with it, or --train-bpe, to make one");
  require<ConfigError>(options.train_bpe == options.vocab_size.has_value(), "--train-bpe and --vocab-size go together");
  options.tokenize.corpus.format = format_of(options);
  options.tokenize.corpus.separator = unescaped(options.separator);
  DataFiles found = find_data_files(options.inputs);
  options.left_out = describe_left_out(found);
  options.tokenize.inputs = std::move(found.files);
  options.tokenize.output = options.output;
  Progress line;
  if (options.train_bpe && !options.left_out.empty()) line.print("note: " + options.left_out);
  try {
    options.train_bpe ? train_tokenizer(options, line) : encode_files(options, line);
  } catch (...) {
    line.clear();
    throw;
  }
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "tokenize", "Turns text into token files, which training maps into memory",
      {"nought tokenize 'corpus/**/*.txt' --tokenizer MODEL_DIR --output corpus.tokens",
       "nought tokenize stories.txt --separator '<|endoftext|>' --tokenizer tokenizer.json --output stories",
       "nought tokenize web.jsonl --field content --tokenizer r50k_base.tiktoken --output web",
       "nought tokenize chats.jsonl --chat-template chatml --tokenizer MODEL_DIR --output chats",
       "nought tokenize 'corpus/**/*.txt' --train-bpe --vocab-size 32000 --output tokenizer"});
  const auto options = std::make_shared<TokenizeFlags>();
  options->tokenize.threads = threads_per_rank();
  command->add_option("INPUT", options->inputs, "Files, folders or globs: text, or JSON with texts or conversations")
      ->required();
  command->add_option("--tokenizer", options->tokenizer, "The tokenizer, as data.tokenizer of a run");
  command
      ->add_option("--output", options->output,
                   "Folder to write: token files, which data.files of a run may name, or the new tokenizer")
      ->required();
  command->add_option("--format", options->format, "text, jsonl or chat; default: by each file's first record")
      ->type_name("FORMAT");
  command->add_option("--field", options->tokenize.corpus.field, "jsonl: the key that holds the text")
      ->capture_default_str();
  command
      ->add_option("--separator", options->separator,
                   "text: what separates documents; default: each file is one document")
      ->type_name("TEXT");
  command
      ->add_option("--chat-template", options->chat_template,
                   fmt::format("chat: a Jinja file, or one of {}; default: that of the tokenizer's folder, or by the "
                               "tokenizer's markers",
                               chat_format_names()))
      ->type_name("NAME|FILE");
  command
      ->add_option("--add-special-token", options->add_special_tokens,
                   "As one of data.add_special_tokens of a run; may be given several times")
      ->type_name("TOKEN")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--parse-special-tokens", options->tokenize.corpus.parse_special_tokens,
                    "What text spells like a special token becomes that token; default: it stays text");
  command->add_option("--threads", options->tokenize.threads, "Number of threads; the result does not depend on it")
      ->type_name("N");
  command->add_option("--file-tokens", options->tokenize.file_tokens, "How many tokens a file of the folder has, about")
      ->capture_default_str();
  command->add_flag("--train-bpe", options->train_bpe,
                    "Train a byte-level BPE tokenizer on the text instead of writing tokens");
  command->add_option("--vocab-size", options->vocab_size, "Number of tokens of the new tokenizer")->type_name("N");
  command
      ->add_option("--marker", options->markers,
                   "Special token of the new tokenizer; may be given several times; the first ends a document")
      ->type_name("TOKEN")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->capture_default_str();
  command
      ->add_option("--pattern", options->pattern,
                   "How the new tokenizer cuts text into words: gpt2, cl100k, o200k or qwen2")
      ->capture_default_str();
  command->add_flag("--overwrite", options->tokenize.overwrite, "Replace what the folder holds");
  command->callback([&invocation, options] { invocation.action = [options] { return run_tokenize(*options); }; });
}

}  // namespace nought
