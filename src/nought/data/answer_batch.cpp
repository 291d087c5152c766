#include "nought/data/answer_batch.h"

#include <algorithm>
#include <vector>

#include "nought/base/error.h"

namespace nought {

namespace {

/// The row, as it grows.
struct Row {
  std::vector<int32_t> ids = {}, targets = {}, of_target = {}, starts = {};
  std::vector<float> weights = {}, likelihood = {}, written = {}, known = {};
};

template <class T>
Tensor in_one_row(Memory& memory, const std::vector<T>& values) {
  const Tensor row = Tensor::empty(memory, {1, static_cast<int64_t>(values.size())}, dtype_of_v<T>, Category::workspace,
                                   memory.host_pool());
  std::copy(values.begin(), values.end(), row.data<T>());
  return row;
}

/// A text without targets. Where it begins in the list of those of its sequences.
auto append_text(std::span<const int32_t> ids, Row& row) {
  const size_t begin = row.ids.size(), end = begin + ids.size();
  row.starts.push_back(static_cast<int32_t>(begin));
  row.ids.insert(row.ids.end(), ids.begin(), ids.end());
  row.targets.resize(end, kIgnoredTarget), row.of_target.resize(end, -1);
  row.weights.resize(end, 1), row.likelihood.resize(end, 0);
  return row.of_target.begin() + static_cast<std::ptrdiff_t>(begin);
}

/// A text of which one hidden state is scored.
void append_scored(const JudgedAnswer& text, const AnswerBatchOptions& options, int32_t index, Row& row) {
  const Interval scored = scored_tokens(text.ids, options);
  std::fill_n(append_text(text.ids, row) + scored.begin, scored.size(), index);
}

void append(const JudgedAnswer& answer, bool chosen, int64_t shared, const AnswerBatchOptions& options, int32_t index,
            Row& row) {
  if (options.scored) return append_scored(answer, options, index, row);
  row.starts.push_back(static_cast<int32_t>(row.ids.size()));
  row.ids.insert(row.ids.end(), answer.ids.begin(), answer.ids.end());
  const int64_t first = std::max<int64_t>(answer.begin, 1);
  for (int64_t at = 1; at <= std::ssize(answer.ids); ++at) {  // the token that is predicted
    const bool last = at == std::ssize(answer.ids), answers = !last && at >= first;
    const bool likely = chosen && !last && options.likelihood != 0 && (answers || options.likelihood_of_prompts);
    row.targets.push_back(answers || likely ? answer.ids[static_cast<size_t>(at)] : kIgnoredTarget);
    row.of_target.push_back(answers ? index : -1);
    row.weights.push_back(static_cast<float>(at - first < shared ? 1 : options.ld_alpha.value_or(1)));
    row.likelihood.push_back(static_cast<float>(likely ? options.likelihood : 0));
    if (options.places) {
      row.written.push_back(static_cast<float>(at));
    } else if (!answer.written.empty()) {
      row.written.push_back(answers ? answer.written[static_cast<size_t>(at)] : 0);
    }
    if (!answer.known.empty()) row.known.push_back(answers ? answer.known[static_cast<size_t>(at)] : 0);
  }
}

/// With documents so short that their attention costs nothing.
void fill_up(int64_t length, int64_t most_positions, Row& row) {
  constexpr int64_t kDocument = 64;
  const int64_t document = std::clamp<int64_t>(most_positions, 1, kDocument);
  for (int64_t at = std::ssize(row.ids); at < length; at += document) row.starts.push_back(static_cast<int32_t>(at));
  const auto size = static_cast<size_t>(std::max<int64_t>(length, std::ssize(row.ids)));
  row.ids.resize(size), row.targets.resize(size, kIgnoredTarget), row.of_target.resize(size, -1);
  row.weights.resize(size, 1), row.likelihood.resize(size, 0);
  if (!row.written.empty()) row.written.resize(size, 0);
  if (!row.known.empty()) row.known.resize(size, 0);
}

/// The batch of a row, which is filled up.
Batch batch_of(Memory& memory, const AnswerBatchOptions& options, Row& row, BatchSequences sequences) {
  const bool empty = row.ids.empty();
  fill_up(std::max<int64_t>(options.length, 1), options.most_positions, row);
  Batch batch{.input_ids = in_one_row(memory, row.ids), .targets = in_one_row(memory, row.targets)};
  batch.document_starts.push_back(std::move(row.starts));
  batch.placeholder = empty;
  sequences.of_target = in_one_row(memory, row.of_target);
  batch.sequences = std::move(sequences);
  return batch;
}

}  // namespace

Interval scored_tokens(std::span<const int32_t> ids, const AnswerBatchOptions& options) {
  if (options.pooling == ScorePooling::mean) return {0, std::ssize(ids)};
  int64_t at = options.pooling == ScorePooling::first_token ? 0 : std::ssize(ids) - 1;
  while (at > 0 && ids[static_cast<size_t>(at)] == options.pad_token_id) --at;
  return {at, at + 1};
}

int64_t likelihood_tokens(const JudgedAnswer& chosen, bool of_prompts) {
  return of_prompts ? static_cast<int64_t>(chosen.ids.size()) - 1 : chosen.targets();
}

Batch batch_of_answers(Memory& memory, std::span<const JudgedAnswer> answers, const AnswerBatchOptions& options) {
  const bool pairs = options.ld_alpha || options.likelihood != 0;
  require(!pairs || answers.size() % 2 == 0, "{} answers are no pairs", answers.size());
  Row row;
  BatchSequences sequences;
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t shared = pairs ? std::min(answers[i].targets(), answers[i ^ 1].targets()) : answers[i].targets();
    append(answers[i], i % 2 == 0, shared, options, static_cast<int32_t>(i), row);
    sequences.all.push_back({.number = answers[i].number,
                             .targets = static_cast<double>(
                                 std::max<int64_t>(static_cast<int64_t>(answers[i].ids.size()) - answers[i].begin, 1)),
                             .reference = answers[i].reference,
                             .label = answers[i].label,
                             .wanted = {answers[i].wanted.begin(), answers[i].wanted.end()}});
  }
  Batch batch = batch_of(memory, options, row, std::move(sequences));
  if (options.ld_alpha) batch.weights = in_one_row(memory, row.weights);
  if (options.likelihood != 0) batch.sequences.likelihood = in_one_row(memory, row.likelihood);
  if (!row.written.empty()) batch.sequences.written = in_one_row(memory, row.written);
  if (!row.known.empty()) batch.sequences.known = in_one_row(memory, row.known);
  return batch;
}

Batch batch_of_places(Memory& memory, std::span<const ValuedAnswer> answers, const AnswerBatchOptions& options) {
  Row row;
  BatchSequences sequences;
  for (const ValuedAnswer& answer : answers) {
    require(0 <= answer.places.begin && answer.places.end <= std::ssize(answer.ids), "values of no tokens");
    const auto of_target = append_text(answer.ids, row);
    for (int64_t place = answer.places.begin; place < answer.places.end; ++place) {
      of_target[place] = static_cast<int32_t>(sequences.all.size());
      sequences.all.push_back({.number = answer.number + place - answer.places.begin, .targets = 1});
    }
  }
  return batch_of(memory, options, row, std::move(sequences));
}

}  // namespace nought
