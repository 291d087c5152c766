#include "nought/train/run_data.h"

#include <algorithm>
#include <cmath>

#include "nought/base/text.h"
#include "nought/data/token_file.h"
#include "nought/data/token_folder.h"
#include "nought/io/text_file.h"
#include "nought/train/validate_run.h"

namespace nought {

namespace {

std::vector<DataSource> training_sources(const DataPlan& plan) {
  std::vector<DataSource> sources;
  for (const SourcePlan& source : plan.sources) sources.push_back({expand_data_files(source.files), source.weight});
  return sources;
}

std::vector<DataSource> validation_sources(const DataPlan& plan) {
  if (plan.validation_files.empty()) return {};
  return {{expand_data_files(plan.validation_files), 0}};
}

/// What folders hold beside text.
void note_left_out(const DataPlan& plan, std::vector<std::string>& notes) {
  std::vector<std::string> patterns = plan.validation_files;
  for (const SourcePlan& source : plan.sources)
    patterns.insert(patterns.end(), source.files.begin(), source.files.end());
  if (std::string line = describe_left_out(find_data_files(patterns)); !line.empty()) notes.push_back(std::move(line));
}

/// All files that are encoded, not mapped.
std::vector<std::filesystem::path> text_files(const DataPlan& plan) {
  std::vector<std::filesystem::path> files;
  for (const std::vector<DataSource>& sources : {training_sources(plan), validation_sources(plan)})
    for (const DataSource& source : sources)
      for (const std::filesystem::path& file : source.files)
        if (file.extension() != kTokenFileExtension) files.push_back(file);
  return files;
}

/// How text files are read.
CorpusOptions corpus_of(const DataPlan& plan, const std::vector<std::filesystem::path>& files,
                        const Tokenizer& tokenizer) {
  return with_template({.format = plan.format, .field = plan.field, .parse_special_tokens = plan.parse_special_tokens},
                       files, plan.chat_template, plan.tokenizer, tokenizer);
}

/// What an export needs so that an answer of the trained model ends by itself.
void add_ends(const std::optional<ChatSource>& chat, const Tokenizer& tokenizer, RunData& data) {
  if (!chat) return;
  data.stop_ids = ChatTemplate(*chat, tokenizer).stop_ids();
  std::reverse(data.stop_ids.begin(), data.stop_ids.end());
  if (chat->of_folder) return;  // whose files are copied
  const int32_t separator = tokenizer.separator();
  data.chat_template = chat->jinja;
  data.specials = {{"eos_token", tokenizer.decode(std::span(&separator, 1))}};
}

/// Small data may lose much of itself to the samples' length.
void note_what_is_left(const TokenDataset& data, std::vector<std::string>& notes) {
  const int64_t tokens = data.num_tokens(), left = tokens - data.num_samples() * data.seq_length();
  if (data.num_samples() == 0 || left * 10 <= tokens) return;
  notes.push_back(
      fmt::format("{} of {} tokens are not trained: they are too few for one more sample of {}; a smaller "
                  "data.seq_length leaves fewer",
                  left, tokens, data.seq_length()));
}

/// What is longer than a sample is trained in parts that do not see each other. `of`: " of ..." if only a part was
/// read.
void note_long_conversations(const ConversationLengths& lengths, int64_t seq_length, const std::string& of,
                             std::vector<std::string>& notes) {
  if (lengths.longer == 0) return;
  const std::string most = lengths.most_of_99 > seq_length && lengths.most_of_99 < lengths.longest
                               ? fmt::format(", {} for 99% of them", lengths.most_of_99)
                               : "";
  notes.push_back(fmt::format(
      "{} of {} conversations{} are longer than data.seq_length {}: they are cut, and what follows a cut is "
      "trained without what came before it; the longest has {} tokens: --set data.seq_length={} has room "
      "for all{}",
      lengths.longer, lengths.count, of, seq_length, lengths.longest, lengths.longest, most));
}

std::string percent(double share) {
  const double percent = 100 * share;
  return percent > 0 && percent < 1 ? fmt::format("{:.2g}%", percent) : fmt::format("{:.0f}%", percent);
}

/// The share of tokens that are trained. ConfigError if none is.
double trained_share(int64_t targets, int64_t tokens) {
  require<ConfigError>(targets > 0,
                       "no token of the data would be trained: what assistants say is, and its conversations have no "
                       "answer of an assistant (role \"assistant\", or from \"gpt\"), or none that fits into a sample");
  return static_cast<double>(targets) / static_cast<double>(std::max<int64_t>(tokens, 1));
}

}  // namespace

std::string describe_tokens(int64_t tokens, int64_t trained, std::string_view tokenizer) {
  const double share = static_cast<double>(trained) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return fmt::format("{} tokens (tokenizer {}){}", format_count(static_cast<double>(tokens)), tokenizer,
                     trained == tokens ? "" : fmt::format(", {} of them trained", percent(share)));
}

std::vector<int32_t> ends_of_answers(const RunPlan& plan, const RunData& data, const ModelConfig& config,
                                     const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = data.stop_ids;
  for (const int64_t id : config.eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  if (tokenizer.has_separator()) ids.push_back(tokenizer.separator());
  if (plan.alignment.ppo && plan.alignment.ppo->stop_token_id) ids.push_back(*plan.alignment.ppo->stop_token_id);
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_of(const DataPlan& plan) {
  return make_tokenizer(plan.tokenizer, plan.add_special_tokens);
}

namespace {

AnswerForm form_of(const AlignmentPlan& plan) {
  if (plan.method == AlignmentMethod::reward) return AnswerForm::rewards;
  if (plan.method == AlignmentMethod::classify) return AnswerForm::scored;
  if (plan.of_rewards()) return AnswerForm::prompts;
  if (plan.distillation) return AnswerForm::completed;
  return plan.of_labels() ? AnswerForm::labelled : AnswerForm::pairs;
}

/// Pairs of answers; `look`: those of the first bytes of each file.
RunData open_pairs(const RunPlan& run, const Tokenizer& tokenizer, std::optional<int64_t> look = {}) {
  const DataPlan& plan = run.data;
  const std::vector<std::filesystem::path> files = text_files(plan);
  AnswerDataOptions options{
      .form = form_of(run.alignment),
      .max_length =
          run.layout.seq_length - (run.alignment.of_rewards() ? run.alignment.policy_loss.max_completion_length : 0),
      .max_prompt = run.alignment.distillation && run.alignment.writes_answers()
                        ? run.layout.seq_length - run.alignment.policy_loss.max_completion_length
                        : INT64_MAX,
      .block = run.layout.micro_batch,
      .corpus = corpus_of(plan, files, tokenizer)};
  if (options.form == AnswerForm::scored) {
    const ClassifierConfig classifier = *model_config_of(run).classifier;
    options.problem = classifier.problem_type(), options.labels = run.alignment.without_labels ? 0 : classifier.labels;
  }
  RunData data{
      .training = TokenDataset(std::make_shared<TokenArray>(tokenizer.vocab_size()), {}, run.layout.seq_length),
      .notes = describe_formats(files, options.corpus, tokenizer)};
  note_left_out(plan, data.notes);
  const int64_t bytes = look.value_or(INT64_MAX);
  auto [training, tail] =
      AnswerData::read(training_sources(plan), tokenizer, options, bytes).split_tail(plan.validation_fraction);
  const std::vector<std::string> notes = training.notes();
  data.notes.insert(data.notes.end(), notes.begin(), notes.end());
  // Prompts have answers to train on only when the model has written them.
  data.targets = options.form == AnswerForm::prompts ? training.num_tokens() : training.num_targets();
  add_ends(options.corpus.chat, tokenizer, data);
  if (!plan.validation_files.empty()) tail = AnswerData::read(validation_sources(plan), tokenizer, options, bytes);
  if (plan.validates()) data.validation_pairs = std::make_shared<AnswerData>(std::move(tail));
  data.pairs = std::make_shared<AnswerData>(std::move(training));
  return data;
}

}  // namespace

RunData open_data(const RunPlan& run, const Tokenizer& tokenizer) {
  if (run.alignment.of_answers()) return open_pairs(run, tokenizer);
  const DataPlan& plan = run.data;
  const int64_t length = run.layout.seq_length;
  const std::vector<std::filesystem::path> files = text_files(plan);
  const DatasetOptions options{
      .seq_length = length, .separate_documents = plan.separate_documents, .corpus = corpus_of(plan, files, tokenizer)};
  std::vector<std::string> notes = describe_formats(files, options.corpus, tokenizer);
  note_left_out(plan, notes);
  const TokenDataset all = TokenDataset::from_sources(training_sources(plan), tokenizer, options);
  auto [training, tail] = all.split_tail(plan.validation_fraction);
  RunData data{.training = std::move(training), .notes = std::move(notes)};
  const ConversationLengths conversations = all.conversation_lengths();
  data.targets = conversations.count > 0 ? data.training.num_targets() : data.training.num_tokens();
  if (data.training.num_samples() > 0) trained_share(data.targets, data.training.num_tokens());
  note_long_conversations(conversations, length, "", data.notes);
  note_what_is_left(data.training, data.notes);
  add_ends(options.corpus.chat, tokenizer, data);
  if (!plan.validation_files.empty()) {
    data.validation = TokenDataset::from_sources(validation_sources(plan), tokenizer, options);
  } else if (plan.validation_fraction > 0) {
    data.validation = std::move(tail);
  }
  if (data.validation)
    require<ConfigError>(data.validation->with_remainder().num_samples() > 0,
                         "the data to validate with has no target: it has {} tokens", data.validation->num_tokens());
  return data;
}

std::string DataLook::describe(std::string_view tokenizer) const {
  const std::string all = fmt::format("{} file{}", files, files == 1 ? "" : "s");
  if (!whole)
    return fmt::format("{} with {} of text (tokenizer {}): looked at {} of it{}; train reads all", all,
                       format_bytes(text_bytes), tokenizer, format_bytes(read_bytes),
                       trained < 1 ? fmt::format(", of which {} of the tokens are trained", percent(trained)) : "");
  if (whole->pairs)
    return fmt::format("{}, {}, {} {}", all, describe_tokens(whole->pairs->num_tokens(), whole->targets, tokenizer),
                       whole->pairs->num_pairs(),
                       whole->pairs->form() == AnswerForm::scored      ? "texts with labels"
                       : whole->pairs->form() == AnswerForm::prompts   ? "prompts"
                       : whole->pairs->form() == AnswerForm::completed ? "prompts with answers"
                                                                       : "pairs of answers");
  const TokenDataset& data = whole->training;
  return fmt::format("{}, {}, {} samples of {} tokens", all,
                     describe_tokens(data.num_tokens(), whole->targets, tokenizer), data.num_samples(),
                     data.seq_length());
}

namespace {

/// Adds what comes first in a file: at least one portion, and at most `bytes` more. Returns how many bytes it read.
int64_t encode_beginning(const std::filesystem::path& file, CorpusOptions corpus, const Tokenizer& tokenizer,
                         int64_t bytes, TokenArray& tokens) {
  corpus.portion_bytes = std::min<size_t>(corpus.portion_bytes, size_t{1} << 16);
  CorpusReader reader({file}, corpus, cut_point_of(tokenizer));
  int64_t read = 0;
  do {
    const std::optional<Portion> portion = reader.next();
    if (!portion) break;
    append(encode_portion(*portion, corpus, tokenizer), tokens);
    read += static_cast<int64_t>(portion->bytes.size());
  } while (read < bytes);
  return read;
}

/// How many samples there are to train on if all text has as many tokens for each byte.
int64_t expected_samples(const DataPlan& plan, int64_t length, double tokens_per_byte) {
  double tokens = 0;
  for (const DataSource& source : training_sources(plan))
    for (const std::filesystem::path& file : source.files)
      tokens += file.extension() == kTokenFileExtension ? static_cast<double>(TokenFile(file).size())
                                                        : tokens_per_byte * static_cast<double>(text_size(file));
  return std::llround(tokens * (1 - plan.validation_fraction) / static_cast<double>(length));
}

}  // namespace

DataLook look_at_data(const RunPlan& run, const Tokenizer& tokenizer, int64_t text_bytes) {
  const DataPlan& plan = run.data;
  const int64_t length = run.layout.seq_length;
  const std::vector<std::filesystem::path> texts = text_files(plan);
  DataLook look{.text_files = static_cast<int64_t>(texts.size())};
  for (const std::vector<DataSource>& sources : {training_sources(plan), validation_sources(plan)})
    for (const DataSource& source : sources) {
      look.files += static_cast<int64_t>(source.files.size());
      check_token_files(source.files, tokenizer);
    }
  for (const std::filesystem::path& file : texts) look.text_bytes += text_size(file);
  if (look.text_bytes <= text_bytes) {
    look.whole = open_data(run, tokenizer);
    look.read_bytes = look.text_bytes, look.notes = look.whole->notes;
    return look;
  }
  const int64_t share = text_bytes / look.text_files;
  if (run.alignment.of_answers()) {
    const RunData beginning = open_pairs(run, tokenizer, share);
    look.read_bytes = text_bytes, look.notes = beginning.notes;
    look.about_samples = std::llround(static_cast<double>(beginning.pairs->num_pairs()) *
                                      static_cast<double>(look.text_bytes) / static_cast<double>(text_bytes));
    return look;
  }
  const CorpusOptions corpus = corpus_of(plan, texts, tokenizer);
  look.notes = describe_formats(texts, corpus, tokenizer);
  note_left_out(plan, look.notes);
  const auto tokens = std::make_shared<TokenArray>(tokenizer.vocab_size());
  for (const std::filesystem::path& file : texts)
    if (look.read_bytes < text_bytes) look.read_bytes += encode_beginning(file, corpus, tokenizer, share, *tokens);
  const TokenDataset seen(tokens, {0, tokens->size()}, length);
  const ConversationLengths conversations = seen.conversation_lengths();
  if (seen.num_samples() > 0 && conversations.count > 0)
    look.trained = trained_share(seen.num_targets(), seen.num_tokens());
  look.about_samples = expected_samples(
      plan, length,
      static_cast<double>(seen.num_tokens()) / static_cast<double>(std::max<int64_t>(look.read_bytes, 1)));
  note_long_conversations(conversations, length, " of those that were looked at", look.notes);
  return look;
}

}  // namespace nought
