#include "nought/train/probe_scores.h"

#include <algorithm>

#include "nought/data/answer_batch.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors.h"

namespace nought {

namespace {

std::vector<double> numbers(const Context& context, const SafetensorsFile& file, const std::string& name,
                            int64_t rows) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(
      (entry.dtype == DType::i64 || entry.dtype == DType::f32) && entry.shape.rank() > 0 && entry.shape[0] == rows,
      "{}: {} must be I64 or F32 with {} rows, got {}{}", file.path().string(), name, rows, name_of(entry.dtype),
      entry.shape);
  const Tensor values = file.load(name, *context.memory);
  const auto as_doubles = [&](auto span) { return std::vector<double>(span.begin(), span.end()); };
  return entry.dtype == DType::i64 ? as_doubles(values.span<int64_t>()) : as_doubles(values.span<float>());
}

}  // namespace

ScoreInput read_score_input(const Context& context, const std::string& path, const ModelConfig& config, bool pairs) {
  const SafetensorsFile file(path);
  const ProbeInput rows = read_probe_rows(context, file, config.vocab_size);
  ScoreInput input;
  const int64_t count = rows.ids.dim(0);
  for (int64_t row = 0; row < count; ++row) {
    const Interval tokens = tokens_of(rows, row);
    const int64_t* ids = rows.ids.data<int64_t>() + row * rows.ids.dim(1);
    input.ids.emplace_back(ids + tokens.begin, ids + tokens.end);
  }
  input.wanted.resize(input.ids.size());
  if (pairs) {
    require<IoError>(count % 2 == 0, "{}: {} rows are no pairs: the chosen answers, then as many rejected ones", path,
                     count);
    if (file.find("margin")) input.margins = numbers(context, file, "margin", count / 2);
    return input;
  }
  const ClassifierConfig& classifier = *config.classifier;
  const std::vector<double> labels = numbers(context, file, "labels", count);
  const size_t each = labels.size() / input.ids.size();
  for (size_t row = 0; row < input.ids.size(); ++row) {
    const auto own = std::span(labels).subspan(row * each, each);
    try {
      require_wanted(classifier.problem_type(), classifier.labels, own);
    } catch (const ConfigError& error) {
      fail<IoError>("{}: labels of row {}: {}", path, row, error.what());
    }
    input.wanted[row].assign(own.begin(), own.end());
  }
  return input;
}

ProbeOutput probe_scores(ShardedModel& model, Decoder& decoder, const ScoreInput& input, const AlignmentPlan& plan,
                         bool gradients, const ProbeSteps& steps) {
  const Context& context = model.context();
  const ClassifierConfig& classifier = *decoder.config().classifier;
  const bool pairs = plan.method == AlignmentMethod::reward;
  const int64_t rows = std::ssize(input.ids), examples = pairs ? rows / 2 : rows;
  const std::vector<Batch> batches =
      probe_batches(examples, model.mesh().group(Group::samples), steps.micro_batches, [&](Interval own) {
        std::vector<JudgedAnswer> texts;
        for (int64_t example = own.begin; example < own.end; ++example)
          for (int64_t row = example; row < rows; row += examples) {  // both rows of a pair
            const auto at = static_cast<size_t>(row);
            texts.push_back({.ids = input.ids[at], .number = row, .wanted = input.wanted[at]});
          }
        return batch_of_answers(
            *context.memory, texts,
            {.scored = true, .pad_token_id = classifier.pad_token_id, .pooling = classifier.pooling});
      });
  const auto scores = std::make_shared<SequenceSums>(input.ids.size() * static_cast<size_t>(classifier.labels));
  decoder.set_objective(std::make_shared<SequenceObjective>(
      pairs ? loss_of_rewards(plan.center) : loss_of_scores(classifier.problem_type(), classifier.labels),
      pairs ? 2 : 1, scores));
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  auto [loss, output] = probe_pass(engine, model, decoder, batches, static_cast<double>(examples), gradients);
  sum_over_ranks(model, *scores);
  if (model.mesh().world().rank() != 0) return {};
  add_numbers(context, "logits", {rows, classifier.labels}, *scores, output);
  if (!input.margins.empty()) {
    double sum = 0;
    const size_t n = input.margins.size();
    for (size_t i = 0; i < n; ++i)
      sum += reward_loss((*scores)[i], (*scores)[n + i], input.margins[i], plan.center).loss / static_cast<double>(n);
    add_numbers(context, "loss.margin", {}, std::span(&sum, 1), output);
  }
  add_numbers(context, "loss", {}, std::span(&loss, 1), output);
  return output;
}

}  // namespace nought
