#include "nought/train/run_data.h"

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

}  // namespace

RunData open_data(const DataPlan& plan, const Tokenizer& tokenizer) {
  const DatasetOptions options{plan.seq_length, plan.separate_documents};
  auto [training, tail] =
      TokenDataset::from_sources(training_sources(plan), tokenizer, options).split_tail(plan.validation_fraction);
  if (!plan.validation_files.empty())
    return {std::move(training), TokenDataset::from_sources(validation_sources(plan), tokenizer, options)};
  if (plan.validation_fraction > 0) return {std::move(training), std::move(tail)};
  return {std::move(training), std::nullopt};
}

void check_data(const DataPlan& plan, const Tokenizer& tokenizer) {
  for (const std::vector<DataSource>& sources : {training_sources(plan), validation_sources(plan)})
    for (const DataSource& source : sources) check_token_files(source.files, tokenizer);
}

}  // namespace nought
