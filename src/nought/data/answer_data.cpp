#include "nought/data/answer_data.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "nought/base/error.h"
#include "nought/data/token_file.h"
#include "nought/tensor/random.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The tokens of a prompt with an answer, and where the answer begins.
struct Encoded {
  std::vector<int32_t> ids;
  int64_t begin = 0;
  bool torn = false;  // the prompt alone has other tokens at its end
  int64_t end = 0;    // tokens behind the text, which stay where it is cut
};

Encoded divergence(const std::vector<int32_t>& prompt, std::vector<int32_t> whole) {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(prompt.size(), whole.size()));
  const auto begin = std::mismatch(whole.begin(), whole.begin() + shorter, prompt.begin()).first - whole.begin();
  return {std::move(whole), begin, begin < std::ssize(prompt)};
}

std::vector<int32_t> encode_text(const std::string& text, bool ends, const Tokenizer& tokenizer, bool specials) {
  std::vector<int32_t> ids;
  tokenizer.begin_document(ids);
  tokenizer.encode(text, ids, {.specials = specials});
  if (ends) tokenizer.end_document(ids);
  return ids;
}

/// A completion may spell the token that ends it.
std::string without_end(std::string text, const Tokenizer& tokenizer) {
  if (!tokenizer.has_separator()) return text;
  const int32_t separator = tokenizer.separator();
  const std::string end = tokenizer.decode(std::span(&separator, 1));
  if (!end.empty() && text.ends_with(end)) text.resize(text.size() - end.size());
  return text;
}

}  // namespace

/// Adds the pairs of a portion.
class AnswerData::Encoder final : public CorpusVisitor {
 public:
  Encoder(const AnswerDataOptions& options, const Tokenizer& tokenizer, AnswerData& out)
      : options_(options), tokenizer_(tokenizer), out_(out) {}

  void text(std::string_view, bool, bool) override { refuse(); }
  void conversation(const ChatRecord&) override { refuse(); }
  void preference(const PreferenceRecord& record) override {
    if (options_.form == AnswerForm::scored) refuse();
    if (options_.form == AnswerForm::labelled) {
      for (const LabelledRecord& each : unpaired(record)) labelled(each);
      return;
    }
    Encoded chosen = encode(record, record.chosen), rejected = encode(record, record.rejected);
    if (chosen.ids == rejected.ids) return count(out_.counts_.same);
    if (chosen.torn || rejected.torn) count(out_.counts_.torn_prompts);
    if (options_.form == AnswerForm::rewards) return add_rewards(record, std::move(chosen), std::move(rejected));
    // The prompt is what both begin with.
    const int64_t begin = std::min(chosen.begin, rejected.begin);
    if (begin >= options_.max_length) return count(out_.counts_.no_room);
    chosen.begin = rejected.begin = begin;
    add(std::move(chosen), std::move(rejected));
  }
  void labelled(const LabelledRecord& record) override {
    if (options_.form != AnswerForm::labelled) refuse();
    block_.push_back(record);
    if (std::ssize(block_) == options_.block) finish_block();
  }
  void scored(const ScoredRecord& record) override {
    if (options_.form != AnswerForm::scored) refuse();
    if (options_.labels > 0) {
      require<ConfigError>(!record.wanted.empty(), "has no \"label\" or \"labels\": what the classifier should say");
      require_wanted(options_.problem, options_.labels, record.wanted);
    }
    Encoded text;
    if (record.conversational) {
      text.ids = chat_template().trained_ids(record.text.messages, record.variables, false);
    } else {
      const std::string whole = record.ends ? without_end(record.text.text, tokenizer_) : record.text.text;
      text.ids = encode_text(whole, record.ends, tokenizer_, options_.corpus.parse_special_tokens);
      const std::span<const int32_t> suffix = tokenizer_.suffix();
      if (!record.ends) text.ids.insert(text.ids.end(), suffix.begin(), suffix.end());
      if (std::ssize(suffix) < options_.max_length) text.end = std::ssize(suffix);
    }
    require<ConfigError>(!text.ids.empty(), "the text has no token");
    add(std::move(text), {});
    out_.wanted_.push_back(options_.labels > 0 ? record.wanted : std::vector<double>());
  }
  void prompt(const PromptRecord& record) override {
    if (options_.form != AnswerForm::prompts) refuse();
    Encoded prompt;
    prompt.ids = record.conversational
                     ? chat_template().trained_ids(record.prompt.messages, record.variables, true)
                     : encode_text(record.prompt.text, false, tokenizer_, options_.corpus.parse_special_tokens);
    require<ConfigError>(!prompt.ids.empty(), "the prompt has no token");
    if (std::ssize(prompt.ids) > options_.max_length) return count(out_.counts_.no_room);
    prompt.begin = std::ssize(prompt.ids);
    add(std::move(prompt), {});
    out_.columns_.push_back(record.columns);
  }
  void completed(const LabelledRecord& record) override {
    if (options_.form != AnswerForm::completed) refuse();
    Encoded answer = encode(record, record.completion);
    require<ConfigError>(answer.begin > 0, "the prompt has no token");
    if (answer.torn) count(out_.counts_.torn_prompts);
    if (answer.begin >= options_.max_length || answer.begin > options_.max_prompt) return count(out_.counts_.no_room);
    require<ConfigError>(answer.begin < std::ssize(answer.ids), "the answer has no token");
    add(std::move(answer), {});
  }
  /// The answers that wait for more neighbours get no more.
  void finish_block() {
    for (size_t i = 0; i < block_.size(); ++i) {
      const LabelledRecord& own = block_[i];
      const LabelledRecord& other = block_[i > 0 ? i - 1 : block_.size() - 1];
      require<ConfigError>(own.conversational == other.conversational,
                           "of two neighbours one answer is a text and the other a list of messages");
      Encoded answer = encode(own, own.completion), partner = encode(own, other.completion);
      if (answer.torn) count(out_.counts_.torn_prompts);
      if (std::min(answer.begin, partner.begin) >= options_.max_length) {
        count(out_.counts_.no_room);
        continue;
      }
      add(std::move(answer), std::move(partner));
      out_.desirable_.push_back(own.desirable ? 1 : 0);
    }
    block_.clear();
  }

 private:
  /// Both texts whole, or none.
  void add_rewards(const PreferenceRecord& record, Encoded chosen, Encoded rejected) {
    if (std::ssize(chosen.ids) > options_.max_length || std::ssize(rejected.ids) > options_.max_length)
      return count(out_.counts_.too_long);
    chosen.begin = rejected.begin = 0;
    add(std::move(chosen), std::move(rejected));
    out_.wanted_.push_back(record.margin ? std::vector{*record.margin} : std::vector<double>{});
  }
  void add(Encoded first, Encoded second) {
    for (Encoded* answer : {&first, &second}) {
      if (std::ssize(answer->ids) > options_.max_length) {
        answer->ids.erase(answer->ids.begin() + options_.max_length - answer->end, answer->ids.end() - answer->end);
        count(out_.counts_.cut);
      }
      out_.append(answer->ids, answer->begin);
    }
    ++out_.sources_.back().pairs;
  }
  static void count(int64_t& counter) { ++counter; }
  [[noreturn]] void refuse() const {
    fail<ConfigError>("is no {}", options_.form == AnswerForm::scored
                                      ? "text with a label: expected \"text\" or \"messages\", and \"label\""
                                      : "pair of answers: expected an object with \"chosen\" and \"rejected\", and "
                                        "\"prompt\"");
  }
  const ChatTemplate& chat_template() {
    if (!template_) template_.emplace(template_of(options_.corpus, tokenizer_));
    return *template_;
  }
  template <class Record>
  Encoded encode(const Record& record, const PreferencePart& answer) {
    if (!record.conversational) {
      const bool specials = options_.corpus.parse_special_tokens;
      const std::string& prompt = record.prompt.text;
      return divergence(encode_text(prompt, false, tokenizer_, specials),
                        encode_text(prompt + without_end(answer.text, tokenizer_), true, tokenizer_, specials));
    }
    std::vector<ChatMessage> messages = record.prompt.messages;
    const std::vector<int32_t> prompt = chat_template().trained_ids(messages, record.variables, true);
    messages.insert(messages.end(), answer.messages.begin(), answer.messages.end());
    return divergence(prompt, template_->trained_ids(messages, record.variables, false));
  }

  const AnswerDataOptions& options_;
  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;
  AnswerData& out_;
  std::vector<LabelledRecord> block_;
};

void AnswerData::add(const fs::path& file, const Tokenizer& tokenizer, const AnswerDataOptions& options,
                     int64_t most_bytes) {
  require<ConfigError>(file.extension() != kTokenFileExtension,
                       "{}: token files hold no pairs of answers: name the JSON files that they were made of",
                       file.string());
  CorpusOptions corpus = options.corpus;
  corpus.format = options.form == AnswerForm::scored      ? CorpusFormat::scored
                  : options.form == AnswerForm::prompts   ? CorpusFormat::prompts
                  : options.form == AnswerForm::completed ? CorpusFormat::completions
                                                          : CorpusFormat::preference;
  corpus.portion_bytes = std::min<size_t>(corpus.portion_bytes, static_cast<size_t>(std::max<int64_t>(most_bytes, 1)));
  CorpusReader reader({file}, corpus, cut_point_of(tokenizer));
  Encoder encoder(options, tokenizer, *this);
  for (int64_t done = 0; done < most_bytes;) {
    const std::optional<Portion> portion = reader.next();
    if (!portion) break;
    visit_documents(*portion, corpus, encoder);
    done += static_cast<int64_t>(portion->bytes.size());
  }
  encoder.finish_block();
}

AnswerData AnswerData::read(std::span<const DataSource> sources, const Tokenizer& tokenizer,
                            const AnswerDataOptions& options, int64_t most_bytes) {
  AnswerData data;
  data.max_length_ = options.max_length;
  data.form_ = options.form;
  for (const DataSource& source : sources) {
    data.sources_.push_back({0, source.weight});
    for (const fs::path& file : source.files) data.add(file, tokenizer, options, most_bytes);
  }
  require<ConfigError>(data.num_pairs() > 0 || options.form != AnswerForm::scored, "the data has no text");
  require<ConfigError>(data.num_pairs() > 0 || options.form != AnswerForm::prompts,
                       "the data has no prompt of at most {} tokens: {} are longer; raise alignment.max_length, or "
                       "lower max_completion_length",
                       options.max_length, data.counts_.no_room);
  require<ConfigError>(data.num_pairs() > 0 || options.form != AnswerForm::completed,
                       "the data has no answer to learn from: the prompts of all {} leave it no room; raise "
                       "alignment.max_length",
                       data.counts_.no_room);
  require<ConfigError>(data.num_pairs() > 0,
                       "the data has no pair of answers to train on: {} have the same answer twice, {} prompts are as "
                       "long as max_length {}, and of {} a text is longer",
                       data.counts_.same, data.counts_.no_room, options.max_length, data.counts_.too_long);
  return data;
}

JudgedAnswer AnswerData::answer(int64_t index) const {
  require(0 <= index && index < num_answers(), "no answer {} among {}", index, num_answers());
  const auto at = static_cast<size_t>(index);
  const int64_t begin = index == 0 ? 0 : ends_[at - 1];
  return {.ids = std::span(ids_).subspan(static_cast<size_t>(begin), static_cast<size_t>(ends_[at] - begin)),
          .begin = begins_[at],
          .label = !has_labels() || index % 2 == 1                   ? AnswerLabel::unjudged
                   : desirable_[static_cast<size_t>(index / 2)] != 0 ? AnswerLabel::desirable
                                                                     : AnswerLabel::undesirable,
          .wanted = wanted_.empty() || index % 2 == 1
                        ? std::span<const double>{}
                        : std::span<const double>(wanted_[static_cast<size_t>(index / 2)])};
}

int64_t AnswerData::tokens_of_pair(int64_t pair, AnswerSides sides) const {
  return (sides.first ? std::ssize(answer(2 * pair).ids) : 0) +
         (sides.second ? std::ssize(answer(2 * pair + 1).ids) : 0);
}

int64_t AnswerData::num_targets() const {
  int64_t count = 0;
  for (int64_t index = 0; index < num_answers(); ++index) count += answer(index).targets();
  return count;
}

std::vector<SourceShare> AnswerData::shares() const {
  std::vector<SourceShare> shares;
  for (const Source& source : sources_) shares.push_back({source.pairs, source.weight});
  return normalized(std::move(shares));
}

void AnswerData::append(std::span<const int32_t> ids, int64_t begin) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ends_.push_back(std::ssize(ids_));
  begins_.push_back(begin);
}

void AnswerData::append(const AnswerData& from, Interval pairs) {
  for (int64_t index = 2 * pairs.begin; index < 2 * pairs.end; ++index) {
    const JudgedAnswer answer = from.answer(index);
    append(answer.ids, answer.begin);
  }
  sources_.back().pairs += pairs.size();
  if (!from.wanted_.empty())
    wanted_.insert(wanted_.end(), from.wanted_.begin() + pairs.begin, from.wanted_.begin() + pairs.end);
  if (!from.columns_.empty())
    columns_.insert(columns_.end(), from.columns_.begin() + pairs.begin, from.columns_.begin() + pairs.end);
  if (from.has_labels())
    desirable_.insert(desirable_.end(), from.desirable_.begin() + pairs.begin, from.desirable_.begin() + pairs.end);
}

std::pair<AnswerData, AnswerData> AnswerData::split_tail(double fraction) const {
  require<ConfigError>(fraction >= 0 && fraction < 1, "validation_fraction must be in [0, 1), got {}", fraction);
  std::pair<AnswerData, AnswerData> parts;
  int64_t first = 0;
  for (const Source& source : sources_) {
    const auto tail = static_cast<int64_t>(std::round(fraction * static_cast<double>(source.pairs)));
    const int64_t end = first + source.pairs;
    for (auto [part, pairs] :
         {std::pair{&parts.first, Interval{first, end - tail}}, {&parts.second, {end - tail, end}}}) {
      part->max_length_ = max_length_, part->form_ = form_;
      part->sources_.push_back({0, source.weight});
      part->append(*this, pairs);
    }
    first = end;
  }
  parts.first.counts_ = counts_;
  require<ConfigError>(fraction == 0 || parts.second.num_pairs() > 0,
                       "validation_fraction {} of {} pairs is less than one; use more data or a larger fraction",
                       fraction, num_pairs());
  return parts;
}

uint64_t AnswerData::fingerprint() const {
  const auto hash_of = [](const auto& values, uint64_t seed) {
    return stable_hash({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])}, seed);
  };
  uint64_t hash = hash_of(begins_, hash_of(ends_, hash_of(ids_, 0)));
  if (has_labels()) hash = hash_of(desirable_, hash);
  for (const std::vector<double>& each : wanted_) hash = hash_of(each, hash);
  for (const std::string& each : columns_) hash = stable_hash(each, hash);
  for (const Source& source : sources_) {
    const std::pair<int64_t, double> key{source.pairs, source.weight};
    hash = stable_hash({reinterpret_cast<const char*>(&key), sizeof(key)}, hash);
  }
  return hash;
}

std::vector<std::string> AnswerData::notes() const {
  std::vector<std::string> notes;
  const int64_t all = num_pairs() + counts_.same + counts_.no_room + counts_.too_long;
  if (form_ == AnswerForm::scored && counts_.cut > 0)
    return {
        fmt::format("{} of {} texts are longer than max_length {}: their ends are cut", counts_.cut, all, max_length_)};
  if (form_ == AnswerForm::prompts && counts_.no_room > 0)
    return {fmt::format(
        "{} of {} prompts have more than {} tokens (max_length less max_completion_length): they are left out",
        counts_.no_room, all, max_length_)};
  if (form_ == AnswerForm::completed) {
    if (counts_.no_room > 0)
      notes.push_back(
          fmt::format("{} of {} prompts leave no room for an answer: they are left out", counts_.no_room, all));
    if (counts_.cut > 0)
      notes.push_back(
          fmt::format("{} of {} answers with their prompts are longer than max_length {}: their ends are cut",
                      counts_.cut, num_pairs(), max_length_));
    return notes;
  }
  if (counts_.too_long > 0)
    notes.push_back(fmt::format("{} of {} pairs have a text longer than max_length {}: they are left out",
                                counts_.too_long, all, max_length_));
  if (counts_.same > 0)
    notes.push_back(fmt::format("{} of {} pairs have the same answer twice: they are left out", counts_.same, all));
  if (counts_.no_room > 0)
    notes.push_back(fmt::format("{} of {} pairs have a prompt of at least max_length {} tokens: they are left out",
                                counts_.no_room, all, max_length_));
  if (counts_.cut > 0)
    notes.push_back(fmt::format("{} of {} answers with their prompts are longer than max_length {}: their ends are cut",
                                counts_.cut, 2 * (all - counts_.same - counts_.no_room), max_length_));
  if (counts_.torn_prompts > 0)
    notes.push_back(
        fmt::format("{} of {} prompts have other tokens at their end once an answer follows: the answer "
                    "begins where the tokens part",
                    counts_.torn_prompts, all));
  return notes;
}

}  // namespace nought
