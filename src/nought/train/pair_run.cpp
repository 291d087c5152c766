#include "nought/train/pair_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors.h"
#include "nought/io/safetensors_writer.h"
#include "nought/tensor/random.h"
#include "nought/train/score_metrics.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::vector<int64_t> all_of(const AnswerSampler& source) {
  std::vector<int64_t> pairs(static_cast<size_t>(source.num_samples()));
  std::iota(pairs.begin(), pairs.end(), 0);
  return pairs;
}

/// The pairs that steps up to `steps` read, each once.
std::vector<int64_t> read_by(const AnswerSampler& source, int64_t steps) {
  if (steps * source.pairs_per_step() >= source.num_samples()) return all_of(source);
  std::vector<int64_t> pairs;
  for (int64_t step = 0; step < steps; ++step) {
    const std::vector<int64_t> those = source.pairs_of_step(step);
    pairs.insert(pairs.end(), those.begin(), those.end());
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

bool lacks(const std::vector<double>& reference, int64_t pair) {
  const auto at = static_cast<size_t>(2 * pair);
  return std::isnan(reference[at]) || std::isnan(reference[at + 1]);
}

int64_t key_of(const std::string& key, const AnswerSampler& training, const AnswerSampler* validation) {
  const std::string all = fmt::format("{} {:016x} {:016x}", key, training.fingerprint(),
                                      validation != nullptr ? validation->fingerprint() : 0);
  return static_cast<int64_t>(stable_hash(all, 1));
}

/// The values that the file has under this key, which are as many as asked for; unknown ones if it has others.
std::vector<double> read_sums(const fs::path& file, const char* name, int64_t key, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count), kUnknown);
  if (!fs::exists(file)) return values;
  const SafetensorsFile kept(file);
  const auto memory = Memory::create();
  const TensorEntry* found = kept.find(name);
  if (kept.find("key") == nullptr || found == nullptr || found->dtype != DType::f64 || found->shape.numel() != count ||
      kept.load("key", *memory).data<int64_t>()[0] != key)
    return values;
  const Tensor tensor = kept.load(name, *memory);
  std::copy_n(tensor.data<double>(), count, values.begin());
  return values;
}

/// All ranks get what the first one has.
void share(std::vector<double>& values, Communicator& world, const Context& context) {
  // Sums over ranks of which all but one have zeros; what is unknown travels as a number of its own.
  constexpr double kSign = 1;  // log-probabilities are at most 0
  for (double& value : values) value = world.rank() != 0 ? 0 : std::isnan(value) ? kSign : value;
  if (!values.empty()) all_reduce_values(world, context, values);
  for (double& value : values)
    if (value == kSign) value = kUnknown;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(std::max<size_t>(values.size(), 1));
}

}  // namespace

AnswerSamplerOptions sampler_options(const RunPlan& plan, const ModelConfig& model, const BatchLayout& layout) {
  const AlignmentPlan& alignment = plan.alignment;
  return {.layout = layout,
          .batch = {.ld_alpha = alignment.ld_alpha,
                    .likelihood = alignment.likelihood,
                    .likelihood_of_prompts = alignment.likelihood_of_prompts,
                    .most_positions = plan.layout.seq_length,
                    .scored = alignment.of_scores(),
                    .pad_token_id = model.classifier ? model.classifier->pad_token_id : std::nullopt,
                    .pooling = model.classifier ? model.classifier->pooling : ScorePooling::last_token},
          .most_tokens = alignment.answers_per_sample() * layout.micro_batch * plan.layout.seq_length,
          .whole_accumulation = plan.layout.stages() > 1,
          .seed = plan.seed,
          .shuffle = !alignment.of_labels()};
}

PairRun::PairRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model,
                 Decoder& decoder, Engine& engine)
    : plan_(plan), model_(model), decoder_(decoder), engine_(engine), sums_(std::make_shared<SequenceSums>()) {
  if (data.pairs)
    training_ = std::make_unique<AnswerSampler>(data.pairs, sampler_options(plan, decoder.config(), layout));
  if (!data.validation_pairs) return;
  BatchLayout rows = layout;
  rows.micro_batch = plan.layout.evaluation_rows, rows.accumulation = 1;
  AnswerSamplerOptions options = sampler_options(plan, decoder.config(), rows);
  options.shuffle = false;
  validation_ = std::make_unique<AnswerSampler>(data.validation_pairs, options);
}

AnswerSampler& PairRun::source() {
  require(training_ != nullptr, "a run without pairs to train on");
  return *training_;
}

std::shared_ptr<const Objective> PairRun::objective(std::shared_ptr<SequenceSums> sums) const {
  const auto of_scores = [&](SequenceObjective::LossOf loss) {
    return std::make_shared<SequenceObjective>(std::move(loss), plan_.alignment.answers_per_sample(), std::move(sums));
  };
  if (plan_.alignment.method == AlignmentMethod::reward) return of_scores(loss_of_rewards(plan_.alignment.center));
  if (const auto& classifier = decoder_.config().classifier)
    return of_scores(loss_of_scores(classifier->problem_type(), classifier->labels));
  if (plan_.alignment.of_labels())
    return std::make_shared<SequenceObjective>(loss_of_labels(plan_.alignment.label_loss, kl_), 1, std::move(sums));
  return std::make_shared<SequenceObjective>(loss_of_pairs(plan_.alignment.loss), 2, std::move(sums));
}

SequenceSums PairRun::sums_of(const AnswerSampler& source, std::span<const int64_t> pairs, AnswerSides sides) {
  const std::vector<Batch> batches = source.batches_of(pairs, sides, *model_.context().memory);
  return sequence_sums(engine_, model_, decoder_, batches, 2 * static_cast<int64_t>(pairs.size()));
}

void PairRun::find_kl(const AnswerSampler& source, std::span<const int64_t> pairs) {
  if (!plan_.alignment.asks_kl()) return;
  const SequenceSums sums = sums_of(source, pairs, {.first = false});
  std::vector<double> policy, reference;
  for (size_t i = 0; i < pairs.size(); ++i) {
    policy.push_back(sums[2 * i + 1]);
    reference.push_back(source.reference()[static_cast<size_t>(2 * pairs[i] + 1)]);
  }
  *kl_ = mismatch_kl(policy, reference);
}

// --- the reference ---

void PairRun::complete(const AnswerSampler& source, const std::vector<int64_t>& pairs, std::vector<double>& reference) {
  std::vector<int64_t> missing;
  for (const int64_t pair : pairs)
    if (lacks(reference, pair)) missing.push_back(pair);
  const auto most = static_cast<size_t>(source.pairs_per_step());
  for (size_t begin = 0; begin < missing.size(); begin += most) {
    const auto chunk = std::span(missing).subspan(begin, std::min(most, missing.size() - begin));
    SequenceSums sums = sums_of(source, chunk, source.data().trained());
    if (plan_.alignment.asks_kl()) {
      const SequenceSums others = sums_of(source, chunk, {.first = false});
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += others[i];
    }
    for (size_t i = 0; i < chunk.size(); ++i)
      for (const size_t side : {size_t{0}, size_t{1}})
        reference[static_cast<size_t>(2 * chunk[i]) + side] = sums[2 * i + side];
  }
}

std::string PairRun::find_reference(const fs::path& file, const std::string& key, int64_t steps,
                                    const std::function<void()>& load) {
  if (!plan_.alignment.has_reference()) return "";
  const Context& context = model_.context();
  Communicator& world = model_.mesh().world();
  const int64_t own_key = key_of(key, *training_, validation_.get());
  struct Part {
    const char* name;
    AnswerSampler* source;
    std::vector<int64_t> pairs;
    std::vector<double> sums;
  };
  std::vector<Part> parts{{"training", training_.get(), read_by(*training_, steps), {}}};
  if (validation_) parts.push_back({"validation", validation_.get(), all_of(*validation_), {}});
  int64_t missing = 0, all = 0;
  for (Part& part : parts) {
    part.sums.assign(static_cast<size_t>(2 * part.source->num_samples()), kUnknown);
    if (world.rank() == 0) part.sums = read_sums(file, part.name, own_key, std::ssize(part.sums));
    share(part.sums, world, context);
    all += std::ssize(part.pairs);
    missing +=
        std::count_if(part.pairs.begin(), part.pairs.end(), [&](int64_t pair) { return lacks(part.sums, pair); });
  }
  if (missing > 0) {
    note_phase(world, "reference");
    load();
    for (Part& part : parts) complete(*part.source, part.pairs, part.sums);
    begin();
  }
  if (missing > 0 && world.rank() == 0) {
    fs::create_directories(file.parent_path());
    std::vector<std::pair<std::string, Tensor>> tensors{
        {"key", Tensor::of<int64_t>(*context.memory, {1}, std::vector{own_key})}};
    for (const Part& part : parts)
      tensors.emplace_back(part.name, Tensor::of<double>(*context.memory, {std::ssize(part.sums)}, part.sums));
    save_safetensors(file, tensors);
  }
  for (Part& part : parts) part.source->set_reference(std::move(part.sums));
  return missing > 0 ? fmt::format("the reference's log-probabilities of {} pairs are in {}", all, file.string())
                     : fmt::format("{} has the reference's log-probabilities of all pairs", file.string());
}

// --- steps ---

void PairRun::begin() { decoder_.set_objective(objective(sums_)); }

void PairRun::begin_step(int64_t step) {
  if (plan_.alignment.asks_kl()) {
    find_kl(*training_, training_->pairs_of_step(step));
    begin();
  }
  sums_->assign(static_cast<size_t>(sums_per_pair() * training_->pairs_per_step()), 0.0);
}

NamedNumbers PairRun::metrics(int64_t step) {
  SequenceSums sums = *sums_;
  sum_over_ranks(model_, sums);
  return metrics_of(*training_, training_->pairs_of_step(step), sums);
}

int64_t PairRun::sums_per_pair() const {
  const auto& classifier = decoder_.config().classifier;
  return 2 * (classifier ? classifier->labels : 1);
}

NamedNumbers PairRun::score_metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                                       const SequenceSums& scores) const {
  if (plan_.alignment.method == AlignmentMethod::reward) return reward_metrics(scores);
  const ClassifierConfig& classifier = *decoder_.config().classifier;
  ScoreMetrics metrics(classifier.problem_type(), classifier.labels);
  const auto labels = static_cast<size_t>(classifier.labels);
  for (size_t i = 0; i < pairs.size(); ++i)
    if (const auto wanted = source.data().answer(2 * pairs[i]).wanted; !wanted.empty())
      metrics.add(std::span(scores).subspan(2 * i * labels, labels), wanted);
  return metrics.numbers();
}

NamedNumbers PairRun::label_metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                                       const SequenceSums& sums) const {
  std::array<std::vector<double>, 2> rewards, logps;  // of wanted answers, and of others
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int64_t index = 2 * pairs[i];
    const size_t side = source.data().answer(index).label == AnswerLabel::desirable ? 0 : 1;
    logps[side].push_back(sums[2 * i]);
    rewards[side].push_back(plan_.alignment.label_loss.beta *
                            (sums[2 * i] - source.reference()[static_cast<size_t>(index)]));
  }
  NamedNumbers numbers;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    if (rewards[side].empty()) continue;
    const std::string name = side == 0 ? "chosen" : "rejected";
    numbers.emplace_back("rewards/" + name, mean_of(rewards[side]));
    numbers.emplace_back("logps/" + name, mean_of(logps[side]));
  }
  if (!rewards[0].empty() && !rewards[1].empty())
    numbers.emplace_back("rewards/margins", mean_of(rewards[0]) - mean_of(rewards[1]));
  if (plan_.alignment.asks_kl()) numbers.emplace_back("kl", *kl_);
  return numbers;
}

NamedNumbers PairRun::metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                                 const SequenceSums& sums) const {
  if (plan_.alignment.of_scores()) return score_metrics_of(source, pairs, sums);
  if (plan_.alignment.of_labels()) return label_metrics_of(source, pairs, sums);
  const AlignmentPlan& alignment = plan_.alignment;
  const bool by_token = alignment.scores_means();
  struct Side {
    std::vector<double> rewards, sums;
  };
  std::array<Side, 2> sides;
  std::vector<double> accuracies, margins, odds, losses_of_odds;
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::array<double, 2> means{};
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const int64_t index = 2 * pairs[i] + static_cast<int64_t>(side);
      const double sum = sums[2 * i + side];
      means[side] = sum / static_cast<double>(std::max<int64_t>(source.data().answer(index).targets(), 1));
      const double known = source.reference().empty() ? 0 : source.reference()[static_cast<size_t>(index)];
      sides[side].sums.push_back(by_token ? means[side] : sum);
      sides[side].rewards.push_back(alignment.loss.beta * (by_token ? means[side] : sum - known));
    }
    margins.push_back(sides[0].rewards.back() - sides[1].rewards.back());
    accuracies.push_back(margins.back() > 0 ? 1 : 0);
    odds.push_back(log_odds(means[0]) - log_odds(means[1]));
    losses_of_odds.push_back(log_sigmoid(odds.back()));
  }
  NamedNumbers numbers{{"rewards/chosen", mean_of(sides[0].rewards)}, {"rewards/rejected", mean_of(sides[1].rewards)},
                       {"rewards/accuracies", mean_of(accuracies)},   {"rewards/margins", mean_of(margins)},
                       {"logps/chosen", mean_of(sides[0].sums)},      {"logps/rejected", mean_of(sides[1].sums)}};
  if (alignment.method == AlignmentMethod::orpo) {
    numbers.emplace_back("log_odds_chosen", mean_of(odds));
    numbers.emplace_back("log_odds_ratio", mean_of(losses_of_odds));
  }
  return numbers;
}

SequenceSums PairRun::validation_sums(double& loss) {
  require(validation_ != nullptr, "a run without pairs to validate with");
  const std::vector<int64_t> pairs = all_of(*validation_);
  const auto most = static_cast<size_t>(validation_->pairs_per_step());
  SequenceSums all;
  loss = 0;
  for (size_t begin = 0; begin < pairs.size(); begin += most) {
    const auto chunk = std::span(pairs).subspan(begin, std::min(most, pairs.size() - begin));
    find_kl(*validation_, chunk);
    const auto sums = std::make_shared<SequenceSums>(static_cast<size_t>(sums_per_pair()) * chunk.size());
    decoder_.set_objective(objective(sums));
    for (const Batch& batch : validation_->batches_of(chunk, validation_->data().trained(), *model_.context().memory))
      loss += engine_.evaluate(std::span(&batch, 1), 1) / static_cast<double>(pairs.size());
    all.insert(all.end(), sums->begin(), sums->end());
  }
  sum_over_ranks(model_, all);
  begin();
  return all;
}

Evaluation PairRun::validate() {
  const auto begin_time = std::chrono::steady_clock::now();
  Evaluation result;
  const SequenceSums all = validation_sums(result.loss);
  const std::vector<int64_t> pairs = all_of(*validation_);
  for (int64_t index = 0; index < 2 * std::ssize(pairs); index += validation_->data().trained().second ? 1 : 2)
    result.targets += validation_->data().answer(index).targets();
  result.of_answers = metrics_of(*validation_, pairs, all);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
  return result;
}

}  // namespace nought
