#include "nought/train/distil_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "nought/base/math.h"
#include "nought/comm/flight_recorder.h"
#include "nought/data/answer_batch.h"
#include "nought/tensor/random.h"
#include "nought/train/draw_answers.h"

namespace nought {

namespace {

/// Rows are filled up to a multiple of this share of the longest that there may be: steps want one of few sizes of
/// memory, and short answers do not cost as much as long ones.
constexpr int64_t kImitatedRowSizes = 8;

}  // namespace

int64_t longest_imitated(const RunData& data, const AlignmentPlan& plan) {
  int64_t longest = 0;
  for (const auto& answers : {data.pairs, data.validation_pairs})
    for (int64_t i = 0; answers && i < answers->num_pairs(); ++i) {
      const JudgedAnswer answer = answers->answer(2 * i);
      longest = std::max(longest, std::ssize(answer.ids));
      if (plan.writes_answers()) longest = std::max(longest, answer.begin + plan.policy_loss.max_completion_length);
    }
  return longest;
}

DistilRun::DistilRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model,
                     Decoder& decoder, Engine& engine, std::vector<int32_t> stop_ids)
    : plan_(plan),
      data_(data.pairs),
      held_out_(data.validation_pairs),
      layout_(layout),
      model_(model),
      decoder_(decoder),
      engine_(engine),
      teacher_(plan, model.mesh(), model.context()),
      stop_ids_(std::move(stop_ids)),
      order_(*data_, layout.train_batch(), plan.seed),
      longest_(longest_imitated(data, plan.alignment)),
      step_answers_{.packing = AnswerPacking(layout, /*whole_accumulation=*/false)} {
  decoder_.set_objective(teacher_.objective(plan.alignment.distillation->beta));
}

// --- the answers of a step ---

bool DistilRun::writes_itself(int64_t step) const {
  constexpr double kRange = 1 << 24;  // the first bits of a hash as a number in [0, 1)
  const uint64_t bits = stable_hash(fmt::format("{} {} writes itself", plan_.seed, step)) >> 40;
  return static_cast<double>(bits) / kRange < plan_.alignment.distillation->own_share;
}

DistilRun::Answer DistilRun::answer_of(const AnswerData& data, int64_t pair) {
  const JudgedAnswer answer = data.answer(2 * pair);
  return {{answer.ids.begin(), answer.ids.end()}, answer.begin};
}

std::vector<DistilRun::Answer> DistilRun::own_answers(const std::vector<int64_t>& pairs, int64_t step) {
  note_phase(model_.mesh().world(), "rollout");
  std::vector<AnswerRequest> requests;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const JudgedAnswer answer = data_->answer(2 * pairs[i]);
    requests.push_back({answer.ids.first(static_cast<size_t>(answer.begin)),
                        stable_hash(fmt::format("{} {} {} 0", plan_.seed, step, i))});
  }
  const std::vector<std::vector<int32_t>> written = draw_answers(
      plan_, model_, decoder_, requests, rollout_options(plan_.alignment, stop_ids_, RolloutOptions().sequences));
  std::vector<Answer> answers;
  for (size_t i = 0; i < written.size(); ++i) {
    Answer& answer = answers.emplace_back();
    answer.ids.assign(requests[i].prompt.begin(), requests[i].prompt.end());
    answer.begin = std::ssize(answer.ids);
    answer.ids.insert(answer.ids.end(), written[i].begin(), written[i].end());
  }
  return answers;
}

DistilRun::Spread DistilRun::spread(const BatchLayout& layout, bool whole, std::vector<Answer> answers, int64_t room) {
  Spread result{.packing = AnswerPacking(layout, whole), .answers = std::move(answers)};
  std::vector<int64_t> lengths;
  for (const Answer& answer : result.answers) lengths.push_back(std::ssize(answer.ids));
  int64_t most = 0;
  result.parts = result.packing.pack(lengths, room, most);
  result.row_tokens = std::min(room, round_up(most, ceil_div(room, kImitatedRowSizes)));
  return result;
}

double DistilRun::Spread::targets(int first, int ranks) const {
  double targets = 0;
  for (const int64_t place : packing.places_of(parts, first, ranks))
    targets += static_cast<double>(answers[static_cast<size_t>(place)].written());
  return targets;
}

Batch DistilRun::make_batch(const Spread& spread, int64_t micro) const {
  std::vector<JudgedAnswer> answers;
  const BatchLayout layout = spread.packing.layout_of(spread.parts);
  for (const int64_t place : spread.parts[static_cast<size_t>(layout.part(micro))]) {
    const Answer& answer = spread.answers[static_cast<size_t>(place)];
    answers.push_back({.ids = answer.ids, .begin = answer.begin, .number = place});
  }
  return batch_of_answers(*model_.context().memory, answers,
                          {.length = spread.row_tokens, .most_positions = plan_.layout.seq_length});
}

void DistilRun::begin_step(int64_t step) {
  step_ = step, own_ = writes_itself(step);
  const std::vector<int64_t> pairs = order_.of_step(step);
  std::vector<Answer> answers;
  if (own_)
    answers = own_answers(pairs, step);
  else
    for (const int64_t pair : pairs) answers.push_back(answer_of(*data_, pair));
  step_answers_ = spread(layout_, plan_.layout.stages() > 1, std::move(answers), layout_.micro_batch * longest_);
  note_phase(model_.mesh().world(), "teacher");
  batches_.clear();
  for (int64_t micro = 0; micro < step_answers_.packing.layout_of(step_answers_.parts).accumulation; ++micro)
    batches_.push_back(make_batch(step_answers_, micro));
  teacher_.ask(batches_);
}

NamedNumbers DistilRun::end_step() {
  batches_.clear();
  double tokens = 0;
  for (const Answer& answer : step_answers_.answers) tokens += static_cast<double>(answer.written());
  return {{"on_policy", own_ ? 1.0 : 0.0},
          {"completions/mean_length", tokens / static_cast<double>(step_answers_.answers.size())}};
}

Evaluation DistilRun::validate() {
  require(held_out_ != nullptr, "a run without answers to validate with");
  const auto begin_time = std::chrono::steady_clock::now();
  BatchLayout rows = layout_;
  rows.micro_batch = plan_.layout.evaluation_rows;
  rows.accumulation = ceil_div(held_out_->num_pairs(), rows.micro_batch * rows.world_size);
  std::vector<Answer> answers;
  for (int64_t i = 0; i < held_out_->num_pairs(); ++i) answers.push_back(answer_of(*held_out_, i));
  const Spread all = spread(rows, /*whole=*/false, std::move(answers), rows.micro_batch * longest_);
  const double weight = all.targets(0, layout_.world_size);
  Evaluation result{.targets = static_cast<int64_t>(weight)};
  for (int64_t micro = 0; micro < all.packing.layout_of(all.parts).accumulation; ++micro) {
    Batch batch = make_batch(all, micro);
    teacher_.ask(std::span(&batch, 1));
    result.loss += engine_.evaluate(std::span(&batch, 1), weight);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
  return result;
}

// --- StepSource ---

std::vector<Batch> DistilRun::batches(int64_t step, Memory& /*memory*/) const {
  require_step(step);
  return batches_;
}

double DistilRun::weight_of_step(int64_t step) const { return weight_of_step(step, 0, layout_.world_size); }

double DistilRun::weight_of_step(int64_t step, int first, int ranks) const {
  require_step(step);
  return step_answers_.targets(first, ranks);
}

int64_t DistilRun::tokens_of_step(int64_t step) const {
  if (step != step_) return layout_.train_batch() * plan_.layout.seq_length;
  int64_t tokens = 0;
  for (const Answer& answer : step_answers_.answers) tokens += std::ssize(answer.ids);
  return tokens;
}

}  // namespace nought
