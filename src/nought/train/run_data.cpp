#include "nought/train/run_data.h"

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
  return with_template({.format = plan.format, .field = plan.field}, files, plan.chat_template, plan.tokenizer,
                       tokenizer);
}

}  // namespace

RunData open_data(const DataPlan& plan, const Tokenizer& tokenizer) {
  const std::vector<std::filesystem::path> files = text_files(plan);
  const DatasetOptions options{.seq_length = plan.seq_length,
                               .separate_documents = plan.separate_documents,
                               .corpus = corpus_of(plan, files, tokenizer)};
  auto [training, tail] =
      TokenDataset::from_sources(training_sources(plan), tokenizer, options).split_tail(plan.validation_fraction);
  RunData data{std::move(training), std::nullopt, describe_formats(files, options.corpus, tokenizer)};
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
