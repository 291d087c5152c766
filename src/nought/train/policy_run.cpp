#include "nought/train/policy_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/io/safetensors.h"
#include "nought/io/safetensors_writer.h"
#include "nought/train/judge_policy.h"

namespace nought {

PromptOrder::PromptOrder(const AnswerData& prompts, int64_t prompts_per_step, uint64_t seed)
    : order_(prompts.shares(), seed), per_step_(prompts_per_step) {
  require<ConfigError>(prompts.num_pairs() >= per_step_,
                       "the data has {} prompts, and one step needs {}: add data, or lower the batch size",
                       prompts.num_pairs(), per_step_);
}

namespace {

PolicyNumbers numbers_of(Interval answers) {
  return {.first = answers.begin, .answers = std::vector<PolicyNumbers::OfAnswer>(static_cast<size_t>(answers.size()))};
}

}  // namespace

int64_t longest_answer(const RunData& data, const AlignmentPlan& plan) {
  int64_t longest = 0;
  for (const auto& prompts : {data.pairs, data.validation_pairs})
    for (int64_t i = 0; prompts && i < prompts->num_pairs(); ++i)
      longest = std::max(longest, prompts->tokens_of_pair(i));
  return longest + plan.policy_loss.max_completion_length;
}

PolicyRun::PolicyRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model,
                     Decoder& decoder, Engine& engine, ReferenceModel* reference, ValueModel* values,
                     const AnswerJudges& judges, const Tokenizer& tokenizer, std::vector<int32_t> stop_ids)
    : plan_(plan),
      prompts_(data.pairs),
      layout_(layout),
      model_(model),
      decoder_(decoder),
      engine_(engine),
      stop_ids_(std::move(stop_ids)),
      order_(*prompts_, layout.train_batch() / plan.alignment.generations, plan.seed),
      held_out_(data.validation_pairs),
      answers_({plan, model, decoder, engine, reference, values, judges, tokenizer, stop_ids_}, prompts_,
               {.layout = layout,
                .share = layout.train_batch(),
                .generations = plan.alignment.generations,
                .whole_shares = plan.layout.stages() > 1,
                .room = layout.micro_batch * longest_answer(data, plan.alignment),
                .asks_policy = plan.alignment.learns_again(layout.accumulation) ||
                               plan.alignment.penalises_divergence() || plan.alignment.ppo,
                .is_learned_once = !plan.alignment.learns_again(layout.accumulation)}),
      has_reference_(reference != nullptr),
      values_(values),
      least_entropy_(plan.alignment.top_entropy < 1 ? std::make_shared<double>(0) : nullptr),
      objective_(values ? make_objective(answers_, ppo_numbers_) : make_objective(numbers_)) {
  judges.require_columns(*prompts_);
  if (held_out_) {
    judges.require_columns(*held_out_);
    validation_ = std::make_unique<PolicyAnswers>(
        PolicySetup{plan, model, decoder, engine, reference, values, judges, tokenizer, stop_ids_}, held_out_,
        validation_options(plan, *held_out_, layout_));
  }
  decoder_.set_objective(objective_);
}

void PolicyRun::begin_step(int64_t step) {
  step_ = step;
  *numbers_ = numbers_of(answers_of_share(share_of(step)));
  const int64_t first = step - step % steps_of_answers();
  if (first != first_) write_answers_of(first);
  if (values_ != nullptr) *ppo_numbers_ = {};
  if (values_ != nullptr && shares() > 1) answers_.shuffle(fmt::format("{} {}", first, epoch_of(step)));
  if (!least_entropy_) return;
  *least_entropy_ = answers_.least_entropy(share_of(step));
  decoder_.set_objective(objective_);
}

void PolicyRun::write_answers_of(int64_t first) {
  std::vector<int64_t> prompts;
  for (int64_t share = 0; share < shares(); ++share)
    for (const int64_t prompt : order_.of_step(first / steps_of_answers() * shares() + share))
      prompts.push_back(prompt);
  answers_.write(prompts, fmt::format("{}", first));
  decoder_.set_objective(objective_);
  first_ = first, written_ += shares() * layout_.train_batch();
  if (model_.mesh().world().rank() == 0)
    answers_.append_to(std::filesystem::path(plan_.output_dir) / kCompletionsFile, first);
}

NamedNumbers PolicyRun::metrics() const {
  const int64_t share = share_of(step_);
  NamedNumbers numbers = answers_.metrics(share);
  if (values_ != nullptr) {
    for (const auto& each : ppo_metrics(*ppo_numbers_)) numbers.push_back(each);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    numbers.emplace_back("eps", std::floor(static_cast<double>(written_) / seconds));
    numbers.emplace_back("episode",
                         static_cast<double>((step_ / steps_of_answers() + 1) * shares() * layout_.train_batch()));
    return numbers;
  }
  for (const auto& each : distances(answers_, share, *numbers_)) numbers.push_back(each);
  return numbers;
}

Evaluation PolicyRun::validate() {
  require(validation_ != nullptr, "a run without prompts to validate with");
  const auto begin_time = std::chrono::steady_clock::now();
  std::vector<int64_t> prompts(static_cast<size_t>(held_out_->num_pairs()));
  std::iota(prompts.begin(), prompts.end(), 0);
  validation_->write(prompts, "validation");
  Evaluation result{.targets = validation_->written_tokens(0)};
  result.loss = values_ != nullptr ? ppo_loss_of_validation(result) : loss_of_validation(result);
  decoder_.set_objective(objective_);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
  return result;
}

double PolicyRun::loss_of_validation(Evaluation& result) {
  const auto numbers = std::make_shared<PolicyNumbers>();
  if (least_entropy_) *least_entropy_ = validation_->least_entropy(0);
  decoder_.set_objective(make_objective(numbers));
  const double weight = std::max(validation_->weight(0, 0, layout_.world_size), 1.0);
  double loss = 0;
  validation_->each_batch(0, [&](const Batch& batch) { loss += engine_.evaluate(std::span(&batch, 1), weight); });
  result.of_answers = validation_->metrics(0);
  for (const auto& each : distances(*validation_, 0, *numbers)) result.of_answers.push_back(each);
  return loss;
}

// --- two models ---

std::shared_ptr<const Objective> PolicyRun::make_objective(const PolicyAnswers& answers,
                                                           std::shared_ptr<PpoNumbers> numbers) const {
  const AlignmentPlan& plan = plan_.alignment;
  return std::make_shared<PpoObjective>(plan.ppo->options, plan.policy_loss.temperature, answers.valued()->targets(),
                                        std::move(numbers));
}

std::shared_ptr<const Objective> PolicyRun::make_value_objective(const PolicyAnswers& answers,
                                                                 std::shared_ptr<PpoNumbers> numbers) const {
  const double share = 1.0 / plan_.layout.context_ranks;
  return std::make_shared<SequenceObjective>(
      loss_of_values(plan_.alignment.ppo->options, answers.valued()->targets(), std::move(numbers), share), 1);
}

void PolicyRun::learn_values(double lr, StepResult& result) {
  if (values_ == nullptr) return;
  note_phase(model_.mesh().world(), "value model");
  const int64_t share = share_of(step_);
  std::vector<Batch> batches;
  answers_.each_value_batch(share, [&](Batch batch) { batches.push_back(std::move(batch)); });
  values_->set_objective(make_value_objective(answers_, ppo_numbers_));
  result.loss += values_->step(batches, answers_.values(share), lr).loss;
}

double PolicyRun::ppo_loss_of_validation(Evaluation& result) {
  const auto numbers = std::make_shared<PpoNumbers>();
  decoder_.set_objective(make_objective(*validation_, numbers));
  values_->set_objective(make_value_objective(*validation_, numbers));
  const double weight = std::max(validation_->weight(0, 0, layout_.world_size), 1.0), values = validation_->values(0);
  double loss = 0;
  validation_->each_batch(0, [&](const Batch& batch) { loss += engine_.evaluate(std::span(&batch, 1), weight); });
  validation_->each_value_batch(0, [&](const Batch& batch) { loss += values_->evaluate(batch, values); });
  result.of_answers = validation_->metrics(0);
  for (const auto& each : ppo_metrics(*numbers)) result.of_answers.push_back(each);
  return loss;
}

NamedNumbers PolicyRun::ppo_metrics(const PpoNumbers& own) const {
  std::vector<double> sums = own.list();
  sum_over_ranks(model_, sums);
  const PpoNumbers of = PpoNumbers::of(sums);
  const double tokens = std::max(of.tokens, 1.0), values = std::max(of.values, 1.0), mean = of.ratios / tokens;
  const double variance = (of.ratio_squares - tokens * mean * mean) / std::max(tokens - 1, 1.0);
  return {{"policy/approxkl_avg", 0.5 * of.squares / tokens},
          {"policy/clipfrac_avg", of.clipped / tokens},
          {"policy/entropy_avg", of.entropy / tokens},
          {"loss/policy_avg", of.loss / tokens},
          {"loss/value_avg", of.value_loss / values},
          {"val/clipfrac_avg", of.values_clipped / values},
          {"val/ratio", mean},
          {"val/ratio_var", std::max(variance, 0.0)}};
}

NamedNumbers PolicyRun::distances(const PolicyAnswers& answers, int64_t share, const PolicyNumbers& of) const {
  std::vector<double> sums{of.tokens, of.kl, of.low_clipped, of.high_clipped, of.ratios, of.entropy};
  const size_t general = sums.size();
  for (const PolicyNumbers::OfAnswer& each : of.answers)
    sums.insert(sums.end(), {each.ratios, each.low_clipped, each.high_clipped});
  sum_over_ranks(model_, sums);
  std::vector<double> low{}, high{};  // the shares of each answer
  for (size_t i = general; i < sums.size(); i += 3)
    if (sums[i] > 0) low.push_back(sums[i + 1] / sums[i]), high.push_back(sums[i + 2] / sums[i]);
  const double ratios = std::max(sums[4], 1.0);
  const double tokens = std::max(sums[0], 1.0);
  NamedNumbers numbers{{"entropy", sums[5] / tokens}};
  if (plan_.alignment.policy_loss.type == PolicyLossType::cispo)
    numbers.emplace_back("cispo_clip_ratio", sums[3] / ratios);
  else
    numbers.insert(numbers.end(),
                   {{"clip_ratio/low_mean", sums[2] / ratios},
                    {"clip_ratio/low_min", low.empty() ? 0 : *std::min_element(low.begin(), low.end())},
                    {"clip_ratio/high_mean", sums[3] / ratios},
                    {"clip_ratio/high_max", high.empty() ? 0 : *std::max_element(high.begin(), high.end())},
                    {"clip_ratio/region_mean", (sums[2] + sums[3]) / ratios}});
  if (has_reference_)
    numbers.emplace_back("kl", plan_.alignment.penalises_divergence() ? answers.divergence(share) : sums[1] / tokens);
  return numbers;
}

// --- checkpoints between steps that share answers ---

void PolicyRun::save(const std::filesystem::path& folder, int64_t step) const {
  if (step % steps_of_answers() == 0 || first_ < 0) return;
  std::vector<std::pair<std::string, Tensor>> tensors = answers_.state();
  tensors.emplace_back("steps", Tensor::of<int64_t>(*model_.context().memory, {3},
                                                    std::vector<int64_t>{first_, shares(), steps_of_answers()}));
  save_safetensors(folder / kAnswersFile, tensors);
}

std::string PolicyRun::resume(const std::filesystem::path& checkpoint, int64_t step) {
  const int64_t first = step - step % steps_of_answers();
  if (first == step) return "";
  const std::filesystem::path path = checkpoint / kAnswersFile;
  const std::string lost =
      fmt::format("{} has not the answers that step {} would have learned from: it learns from new ones",
                  checkpoint.string(), step + 1);
  if (!std::filesystem::exists(path)) return lost;
  const SafetensorsFile file(path);
  const bool same = file.load("steps", *model_.context().memory).to_vector<int64_t>() ==
                    std::vector<int64_t>{first, shares(), steps_of_answers()};
  if (!same || !answers_.restore(file, shares() * layout_.train_batch())) return lost;
  decoder_.set_objective(objective_);
  first_ = first;
  return "";
}

// --- StepSource ---

void PolicyRun::require_step(int64_t step) const { require(step == step_, "the answers are of another step"); }

std::vector<Batch> PolicyRun::batches(int64_t step, Memory& /*memory*/) const {
  require_step(step);
  return answers_.batches(share_of(step));
}

// At least 1, as in TRL: of a step whose answers count nothing nothing is learned.
double PolicyRun::weight_of_step(int64_t step) const {
  return std::max(weight_of_step(step, 0, layout_.world_size), 1.0);
}

double PolicyRun::weight_of_step(int64_t step, int first, int ranks) const {
  require_step(step);
  return answers_.weight(share_of(step), first, ranks);
}

int64_t PolicyRun::tokens_of_step(int64_t step) const {
  if (step != step_) return layout_.train_batch() * plan_.layout.seq_length;
  return answers_.tokens(share_of(step));
}

}  // namespace nought
