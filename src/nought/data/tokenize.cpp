#include "nought/data/tokenize.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/data/ordered_map.h"
#include "nought/data/token_file.h"
#include "nought/data/token_folder.h"
#include "nought/io/text_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The hash of bytes that come one after the other.
class RunningHash {
 public:
  RunningHash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(std::string_view bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string str() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

/// A named template's name; of others, what they hold.
std::string identity_of(const ChatSource& chat) {
  if (enum_named<ChatFormat>(chat.name)) return chat.name;
  std::string all = chat.jinja;
  for (const auto& [key, text] : chat.specials) all += fmt::format("\n{}={}", key, text);
  return fmt::format("jinja {:016x}", XXH3_64bits(all.data(), all.size()));
}

/// Whatever decides about the tokens, besides the input.
std::string settings_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const CorpusOptions& corpus = options.corpus;
  Json settings{{"tokenizer", fmt::format("{:016x}", tokenizer.fingerprint())},
                {"vocab_size", tokenizer.vocab_size()},
                {"format", corpus.format ? enum_name(*corpus.format) : "by name"},
                {"field", corpus.field},
                {"separator", corpus.separator},
                {"chat_template", corpus.chat ? identity_of(*corpus.chat) : "by markers"},
                {"portion_bytes", corpus.portion_bytes},
                {"file_tokens", options.file_tokens}};
  if (corpus.parse_special_tokens) settings["parse_special_tokens"] = true;  // absent from older folders
  return settings.dump();
}

/// The folder as it grows: whole token files, and an index that says how far they go.
class TokenFolder {
 public:
  TokenFolder(const TokenizeOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), writer_(new_writer()) {
    index_.tokenizer = tokenizer.name();
    index_.settings = settings_of(options, tokenizer);
    for (const fs::path& input : options.inputs) {
      index_.inputs.push_back(input.string());
      progress_.total_bytes += text_size(input);
    }
    open();
  }

  bool complete() const { return index_.complete; }
  CorpusPlace place() const {
    return {static_cast<size_t>(index_.done.input), static_cast<size_t>(index_.done.offset), index_.done.line};
  }

  void add(const Portion& portion, const EncodedPortion& tokens) {
    writer_.append(tokens.ids, tokens.targets, tokens.starts);
    hash_.add(portion.bytes);
    const auto bytes = static_cast<int64_t>(portion.bytes.size());
    progress_.bytes += bytes;
    file_bytes_ += bytes;
    progress_.tokens += static_cast<int64_t>(tokens.ids.size());
    progress_.documents += static_cast<int64_t>(tokens.starts.size());
    progress_.targets += tokens.targets.empty() ? static_cast<int64_t>(tokens.ids.size())
                                                : std::count(tokens.targets.begin(), tokens.targets.end(), 1);
    end_ = portion.end;
    if (portion.ends_document && writer_.num_tokens() >= options_.file_tokens) write_file();
  }

  void finish() {
    if (writer_.num_tokens() > 0) write_file();
    require<ConfigError>(!index_.files.empty(), "the input has no text: {} files of {} bytes", options_.inputs.size(),
                         progress_.total_bytes);
    end_ = {options_.inputs.size(), 0, 0};
    index_.complete = true;
    save_index();
  }

  TokenizeProgress progress() const {
    TokenizeProgress progress = progress_;
    progress.files = static_cast<int64_t>(index_.files.size());
    progress.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    return progress;
  }

 private:
  TokenFileWriter new_writer() const { return {tokenizer_.vocab_size(), tokenizer_.fingerprint()}; }

  /// Takes up what an earlier run left, or starts anew.
  void open() {
    std::error_code error;
    fs::create_directories(options_.output, error);
    require<IoError>(fs::is_directory(options_.output, error), "{}: cannot create this folder",
                     options_.output.string());
    const auto earlier = read_token_index(options_.output);
    if (!earlier || options_.overwrite) return start_anew(earlier);
    const std::string others = what_differs(*earlier);
    if (!others.empty() && !earlier->complete) {  // a run that failed is in nobody's way
      progress_.removed_files = static_cast<int64_t>(earlier->files.size());
      return start_anew(earlier);
    }
    require<ConfigError>(others.empty(), "{}: holds the tokens of {}: --overwrite makes them again",
                         options_.output.string(), others);
    take_up(*earlier);
  }

  void start_anew(const std::optional<TokenFolderIndex>& earlier) {
    hash_ = RunningHash();
    save_index();
    std::error_code ignored;
    if (earlier)
      for (const TokenFolderFile& file : earlier->files)
        if (is_file_name(file.name)) fs::remove(options_.output / file.name, ignored);
  }

  /// What an earlier run read or did otherwise; "" if it began as this one does.
  std::string what_differs(const TokenFolderIndex& earlier) {
    if (earlier.settings != index_.settings) return "another tokenizer or other options";
    if (earlier.inputs != index_.inputs) return "other input files";
    return hash_of(earlier.done) == earlier.done.hash ? "" : "an input that has changed since";
  }

  void take_up(const TokenFolderIndex& earlier) {
    index_.complete = earlier.complete;
    index_.files = earlier.files;
    index_.done = earlier.done;
    for (const TokenFolderFile& file : index_.files) {
      progress_.tokens += file.tokens;
      progress_.documents += file.documents;
      progress_.targets += file.targets;
      progress_.bytes += file.input_bytes;
    }
    progress_.kept_bytes = progress_.bytes;
    if (index_.complete) progress_.kept_bytes = progress_.bytes = progress_.total_bytes;
  }

  /// The hash of the input before a place; "" if the input is shorter.
  std::string hash_of(const TokenFolderState& place) {
    for (size_t i = 0; i < options_.inputs.size() && static_cast<int64_t>(i) <= place.input; ++i) {
      const bool last = static_cast<int64_t>(i) == place.input;
      if (last && place.offset == 0) break;
      const auto file = map_text(options_.inputs[i]);
      const size_t size = last ? static_cast<size_t>(place.offset) : file->text().size();
      if (size > file->text().size()) return "";
      hash_.add(file->text().substr(0, size));
    }
    return hash_.str();
  }

  void write_file() {
    const std::string name = fmt::format("{:05}{}", index_.files.size(), kTokenFileExtension);
    writer_.write(options_.output / name);
    int64_t earlier_targets = 0;
    for (const TokenFolderFile& file : index_.files) earlier_targets += file.targets;
    index_.files.push_back({name, writer_.num_tokens(), writer_.num_documents(), progress_.targets - earlier_targets,
                            std::exchange(file_bytes_, 0)});
    writer_ = new_writer();
    save_index();
  }

  void save_index() {
    index_.done = {static_cast<int64_t>(end_.input), static_cast<int64_t>(end_.offset), end_.line, hash_.str()};
    write_token_index(options_.output, index_);
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  TokenFolderIndex index_;
  TokenFileWriter writer_;
  RunningHash hash_;
  CorpusPlace end_;
  int64_t file_bytes_ = 0;
  TokenizeProgress progress_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

TokenizeProgress tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer,
                          const TokenizeObserver& observer) {
  require<ConfigError>(options.threads > 0 && options.file_tokens > 0 && options.corpus.portion_bytes > 0,
                       "{} threads, {} tokens per file and portions of {} bytes must be positive", options.threads,
                       options.file_tokens, options.corpus.portion_bytes);
  tokenizer.separator();  // says now if the tokenizer has none
  TokenFolder folder(options, tokenizer);
  observer(folder.progress());
  if (!folder.complete()) {
    CorpusReader reader(options.inputs, options.corpus, cut_point_of(tokenizer), folder.place());
    ordered_map(
        options.threads, [&] { return reader.next(); },
        [&](const Portion& portion) { return encode_portion(portion, options.corpus, tokenizer); },
        [&](const Portion& portion, const EncodedPortion& tokens) {
          folder.add(portion, tokens);
          observer(folder.progress());
        });
    folder.finish();
  }
  observer(folder.progress());
  return folder.progress();
}

}  // namespace nought
