#include "nought/train/run_data.h"

#include <algorithm>

#include "nought/data/chat_jinja.h"
#include "nought/data/token_file.h"
#include "nought/data/token_folder.h"

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
  return with_notation({.format = plan.format,
                        .field = plan.field,
                        .chat = plan.chat,
                        .parse_special_tokens = plan.parse_special_tokens},
                       files, plan.tokenizer, tokenizer);
}

/// What an export needs so that an answer of the trained model ends by itself.
void add_ends(const DataPlan& plan, const std::optional<ChatFormat>& chat, const Tokenizer& tokenizer, RunData& data) {
  if (!chat) return;
  data.stop_ids = ChatTemplate(*chat, tokenizer).stop_ids();
  std::reverse(data.stop_ids.begin(), data.stop_ids.end());
  std::error_code ignored;
  const bool own = std::filesystem::is_directory(plan.tokenizer, ignored) && !chat_program(plan.tokenizer).empty();
  if (!plan.chat && own) return;
  const int32_t separator = tokenizer.separator();
  data.chat_template = chat_jinja(*chat, tokenizer);
  data.specials = {{"eos_token", tokenizer.decode(std::span(&separator, 1))}};
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(const DataPlan& plan) {
  return make_tokenizer(plan.tokenizer, plan.add_special_tokens);
}

RunData open_data(const DataPlan& plan, const Tokenizer& tokenizer) {
  const std::vector<std::filesystem::path> files = text_files(plan);
  const DatasetOptions options{.seq_length = plan.seq_length,
                               .separate_documents = plan.separate_documents,
                               .corpus = corpus_of(plan, files, tokenizer)};
  auto [training, tail] =
      TokenDataset::from_sources(training_sources(plan), tokenizer, options).split_tail(plan.validation_fraction);
  RunData data{std::move(training), std::nullopt, describe_formats(files, options.corpus, tokenizer)};
  add_ends(plan, options.corpus.chat, tokenizer, data);
  if (!plan.validation_files.empty()) {
    data.validation = TokenDataset::from_sources(validation_sources(plan), tokenizer, options);
  } else if (plan.validation_fraction > 0) {
    data.validation = std::move(tail);
  }
  return data;
}

void check_data(const DataPlan& plan, const Tokenizer& tokenizer) {
  corpus_of(plan, text_files(plan), tokenizer);
  for (const std::vector<DataSource>& sources : {training_sources(plan), validation_sources(plan)})
    for (const DataSource& source : sources) check_token_files(source.files, tokenizer);
}

}  // namespace nought
