#include "nought/train/policy_run.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "nought/base/json.h"
#include "nought/base/math.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"
#include "nought/data/answer_batch.h"
#include "nought/infer/rollout.h"
#include "nought/io/safetensors.h"
#include "nought/io/safetensors_writer.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

/// Rows are filled up to a multiple of this share of the longest that there may be: steps want one of few sizes of
/// memory, and short answers do not cost as much as long ones.
constexpr int64_t kRowSizes = 8;

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

PromptOrder::PromptOrder(const AnswerData& prompts, int64_t prompts_per_step, uint64_t seed)
    : order_(prompts.shares(), seed), per_step_(prompts_per_step) {
  require<ConfigError>(prompts.num_pairs() >= per_step_,
                       "the data has {} prompts, and one step needs {}: add data, or lower the batch size",
                       prompts.num_pairs(), per_step_);
}

int64_t longest_answer(const AnswerData& prompts, const AlignmentPlan& plan) {
  int64_t longest = 0;
  for (int64_t i = 0; i < prompts.num_pairs(); ++i) longest = std::max(longest, prompts.tokens_of_pair(i));
  return longest + plan.policy_loss.max_completion_length;
}

PolicyRun::PolicyRun(const RunPlan& plan, std::shared_ptr<const AnswerData> prompts, const BatchLayout& layout,
                     ShardedModel& model, Decoder& decoder, Engine& engine, ReferenceModel* reference,
                     const Tokenizer& tokenizer, std::vector<int32_t> stop_ids)
    : plan_(plan),
      prompts_(std::move(prompts)),
      layout_(layout),
      model_(model),
      decoder_(decoder),
      engine_(engine),
      reference_(reference),
      tokenizer_(tokenizer),
      stop_ids_(std::move(stop_ids)),
      packing_(layout, plan.layout.stages() > 1),
      order_(*prompts_, layout.train_batch() / plan.alignment.generations, plan.seed),
      objective_(std::make_shared<PolicyObjective>(plan.alignment.policy_loss, numbers_)),
      room_(layout.micro_batch * longest_answer(*prompts_, plan.alignment)) {
  for (const RewardConfig& each : plan.alignment.rewards)
    rewards_.push_back(make_reward(each, plan.alignment.policy_loss.max_completion_length));
  for (int64_t i = 0; i < prompts_->num_pairs(); ++i) {
    const Json columns = Json::parse(prompts_->columns(i));
    try {
      for (const auto& reward : rewards_) reward->require_columns(columns);
    } catch (const ConfigError& error) {
      fail<ConfigError>("the prompt {} {}", columns.at("prompt").dump().substr(0, 60), error.what());
    }
  }
  decoder_.set_objective(objective_);
}

// --- what a step learns from ---

std::vector<std::vector<int32_t>> PolicyRun::write(const std::vector<int64_t>& prompts, int64_t step) {
  std::vector<AnswerRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int64_t member = 0; member < generations(); ++member)
      requests.push_back(
          {prompts_->answer(2 * prompts[i]).ids, stable_hash(fmt::format("{} {} {} {}", plan_.seed, step, i, member))});
  // Ranks that gather parameters or spread experts make the same passes; others write a share of the answers each.
  Communicator& samples = model_.mesh().group(Group::samples);
  const bool together = plan_.layout.writes_answers_together();
  const auto count = std::ssize(requests);
  const Interval own =
      together ? Interval{0, count}
               : Interval{count * samples.rank() / samples.size(), count * (samples.rank() + 1) / samples.size()};
  const AnswerSampling& sampling = plan_.alignment.sampling;
  const RolloutOptions options{.max_completion_length = plan_.alignment.policy_loss.max_completion_length,
                               .sampling = {.temperature = plan_.alignment.policy_loss.temperature,
                                            .top_k = sampling.top_k,
                                            .top_p = sampling.top_p,
                                            .min_p = sampling.min_p,
                                            .repetition_penalty = sampling.repetition_penalty},
                               .stop_ids = stop_ids_};
  model_.expect(decoder_.passes(/*backward=*/false));
  std::vector<std::vector<int32_t>> answers = write_answers(
      decoder_, model_.context(), model_.options().dtype,
      std::span(requests).subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size())), options);
  model_.expect({});
  if (together || samples.size() == 1) return answers;
  std::vector<std::vector<int32_t>> all;
  for (const std::string& part : texts_of_ranks(samples, model_.context(), Json(answers).dump()))
    for (const Json& answer : Json::parse(part)) all.push_back(answer.get<std::vector<int32_t>>());
  return all;
}

bool PolicyRun::ended(const Answer& answer) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), answer.ids.back()) != stop_ids_.end();
}

std::string PolicyRun::text_of(const Answer& answer) const {
  const std::span<const int32_t> ids = answer.written();
  return tokenizer_.decode(ids.first(ids.size() - (ended(answer) ? 1 : 0)));
}

std::vector<double> PolicyRun::judge() {
  std::vector<Json> columns;  // one for each group
  std::vector<WrittenAnswer> written;
  const auto group = static_cast<size_t>(generations());
  columns.reserve(answers_.size() / group);
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (i % group == 0) columns.push_back(Json::parse(prompts_->columns(answers_[i].prompt)));
    answers_[i].text = text_of(answers_[i]);
    written.push_back({columns.back(), answers_[i].text, answers_[i].written()});
  }
  std::vector<double> scores(answers_.size() * rewards_.size());
  for (size_t k = 0; k < rewards_.size(); ++k) {
    const std::vector<double> own = rewards_[k]->of(written);
    for (size_t i = 0; i < own.size(); ++i) scores[i * rewards_.size() + k] = own[i];
  }
  return scores;
}

void PolicyRun::begin_step(int64_t step) {
  step_ = step;
  *numbers_ = {};
  if (const int64_t first = step - step % steps_of_answers(); first != first_) write_answers_of(first);
}

void PolicyRun::write_answers_of(int64_t first) {
  Communicator& world = model_.mesh().world();
  note_phase(world, "rollout");
  model_.settle();  // ranks make different passes from here on
  std::vector<int64_t> prompts;
  for (int64_t share = 0; share < shares(); ++share)
    for (const int64_t prompt : order_.of_step(first / steps_of_answers() * shares() + share))
      prompts.push_back(prompt);
  std::vector<std::vector<int32_t>> written = write(prompts, first);
  answers_.clear();
  for (size_t i = 0; i < written.size(); ++i) {
    const int64_t prompt = prompts[i / static_cast<size_t>(generations())];
    const std::span<const int32_t> ids = prompts_->answer(2 * prompt).ids;
    Answer& answer = answers_.emplace_back();
    answer.prompt = prompt, answer.begin = std::ssize(ids);
    answer.ids.assign(ids.begin(), ids.end());
    answer.ids.insert(answer.ids.end(), written[i].begin(), written[i].end());
  }
  const std::string scored = found_by_first(world, model_.context(), [&] {
    Json list = Json::array();
    for (const double score : judge()) list.push_back(number_or_null(score));
    return list.dump();
  });
  scores_.clear();
  for (const Json& score : Json::parse(scored)) scores_.push_back(number_of(score));
  first_ = first;
  pack();
  if (learns_again() || plan_.alignment.penalises_divergence()) ask_policy();
  if (reference_ != nullptr) ask_reference();
  take_scores();
  if (world.rank() == 0) keep_completions(first);
}

void PolicyRun::take_scores() {
  const AlignmentPlan& alignment = plan_.alignment;
  const std::vector<double> totals = total_rewards(scores_, alignment.reward_weights);
  std::vector<double> compared = totals, divergences, advantages;
  if (alignment.penalises_divergence())
    for (Answer& answer : answers_) {
      answer.divergence = 0;
      for (auto at = static_cast<size_t>(answer.begin); at < answer.ids.size(); ++at)
        answer.divergence += double{answer.written_logs[at]} - double{answer.known[at]};
      divergences.push_back(answer.divergence);
      // Learned from once, the policy is the one that wrote: its ratio to itself is 1 to the last digit.
      if (!learns_again()) answer.written_logs.clear();
      answer.known.clear();
    }
  if (alignment.leave_one_out) {
    compared = penalised_rewards(*alignment.leave_one_out, totals, divergences);
    advantages = advantages_over_others(*alignment.leave_one_out, compared, generations());
  } else {
    advantages = advantages_of(scores_, alignment.reward_weights, generations(), alignment.reward_scale);
  }
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].reward = totals[i], answers_[i].compared = compared[i], answers_[i].advantage = advantages[i];
}

void PolicyRun::pack() {
  const std::vector<int64_t> lengths = this->lengths();
  shares_.clear();
  const auto count = static_cast<size_t>(layout_.train_batch());
  for (size_t begin = 0; begin < lengths.size(); begin += count) {
    int64_t most = 0;
    Share& share = shares_.emplace_back();
    share.number = std::ssize(shares_) - 1;
    share.parts = packing_.pack(std::span(lengths).subspan(begin, count), room_, most);
    share.row_tokens = std::min(room_, round_up(most, ceil_div(room_, kRowSizes)));
  }
}

std::vector<int64_t> PolicyRun::lengths() const {
  std::vector<int64_t> lengths;
  lengths.reserve(answers_.size());
  for (const Answer& answer : answers_) lengths.push_back(std::ssize(answer.ids));
  return lengths;
}

void PolicyRun::make_batches(const std::function<void(const Batch&)>& take) const {
  for (const Share& share : shares_)
    for (int64_t micro = 0; micro < packing_.layout_of(share.parts).accumulation; ++micro)
      take(make_batch(share, micro, *model_.context().memory, /*places=*/true));
}

void PolicyRun::ask_policy() {
  note_phase(model_.mesh().world(), "old log-probabilities");
  const TokenLogs logs = token_logs(
      engine_, model_, decoder_, [this](const auto& take) { make_batches(take); }, lengths(),
      plan_.alignment.policy_loss.temperature);
  decoder_.set_objective(objective_);
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].written_logs = logs.of(static_cast<int64_t>(i), std::ssize(answers_[i].ids));
}

void PolicyRun::ask_reference() {
  note_phase(model_.mesh().world(), "reference");
  const TokenLogs logs = reference_->token_logs([this](const auto& take) { make_batches(take); }, lengths(),
                                                plan_.alignment.policy_loss.temperature);
  decoder_.set_objective(objective_);
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].known = logs.of(static_cast<int64_t>(i), std::ssize(answers_[i].ids));
}

void PolicyRun::keep_completions(int64_t step) const {
  const std::filesystem::path file = std::filesystem::path(plan_.output_dir) / kCompletionsFile;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::app);
  for (size_t i = 0; i < answers_.size(); ++i) {
    const Answer& answer = answers_[i];
    OrderedJson line{{"step", step + 1},
                     {"prompt", OrderedJson::parse(prompts_->columns(answer.prompt)).at("prompt")},
                     {"completion", answer.text},
                     {"ended", ended(answer)}};
    for (size_t k = 0; k < rewards_.size(); ++k)
      line["rewards"][reward_name(plan_.alignment.rewards[k])] =
          OrderedJson(number_or_null(scores_[i * rewards_.size() + k]));
    line["reward"] = OrderedJson(number_or_null(answer.reward));
    line["advantage"] = answer.advantage;
    out << line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
  }
  require<IoError>(static_cast<bool>(out.flush()), "{}: could not be written: is the disk full?", file.string());
}

NamedNumbers PolicyRun::metrics() const {
  std::vector<double> rewards, compared, zero, lengths, terminated;
  for (const Answer& answer : learned()) {
    rewards.push_back(answer.reward), compared.push_back(answer.compared);
    lengths.push_back(static_cast<double>(answer.written().size()));
    if (ended(answer)) terminated.push_back(lengths.back());
  }
  const auto group = static_cast<size_t>(generations());
  for (size_t i = 0; i < compared.size(); i += group)
    zero.push_back(moments_of(std::span(compared).subspan(i, group)).deviation == 0 ? 1 : 0);
  NamedNumbers numbers{{"reward", moments_of(rewards).mean},
                       {"reward_std", moments_of(rewards).deviation},
                       {"frac_reward_zero_std", moments_of(zero).mean}};
  for (size_t k = 0; k < rewards_.size(); ++k) {
    std::vector<double> scores;
    for (size_t i = k; i < learned_scores().size(); i += rewards_.size()) scores.push_back(learned_scores()[i]);
    const std::string name = "rewards/" + reward_name(plan_.alignment.rewards[k]);
    const Moments moments = moments_of(scores);
    numbers.emplace_back(name + "/mean", moments.mean);
    numbers.emplace_back(name + "/std", moments.deviation);
  }
  const auto add_lengths = [&](const std::string& name, const std::vector<double>& some) {
    if (some.empty()) return;
    const auto [least, most] = std::minmax_element(some.begin(), some.end());
    numbers.insert(numbers.end(), {{"completions/mean_" + name, moments_of(some).mean},
                                   {"completions/min_" + name, *least},
                                   {"completions/max_" + name, *most}});
  };
  add_lengths("length", lengths), add_lengths("terminated_length", terminated);
  numbers.emplace_back("completions/clipped_ratio",
                       1 - static_cast<double>(terminated.size()) / static_cast<double>(lengths.size()));
  for (const auto& each : distances()) numbers.push_back(each);
  std::erase_if(numbers, [](const auto& each) { return std::isnan(each.second); });
  return numbers;
}

NamedNumbers PolicyRun::distances() const {
  std::vector<double> sums{numbers_->tokens, numbers_->kl, numbers_->low_clipped, numbers_->high_clipped,
                           numbers_->ratios};
  sum_over_ranks(model_, sums);
  double tokens = std::max(sums[0], 1.0), kl = sums[1];
  const double ratios = std::max(sums[4], 1.0);
  NamedNumbers numbers{{"clip_ratio/low_mean", sums[2] / ratios},
                       {"clip_ratio/high_mean", sums[3] / ratios},
                       {"clip_ratio/region_mean", (sums[2] + sums[3]) / ratios}};
  if (plan_.alignment.penalises_divergence()) {
    kl = tokens = 0;
    for (const Answer& answer : learned())
      kl += answer.divergence, tokens += static_cast<double>(answer.written().size());
  }
  if (reference_ != nullptr) numbers.emplace_back("kl", kl / tokens);
  return numbers;
}

// --- checkpoints between steps that share answers ---

void PolicyRun::save(const std::filesystem::path& folder, int64_t step) const {
  if (step % steps_of_answers() == 0 || first_ < 0) return;
  std::vector<int64_t> lengths, begins, prompts;
  std::vector<int32_t> ids;
  std::vector<float> written;
  for (const Answer& answer : answers_) {
    lengths.push_back(std::ssize(answer.ids)), begins.push_back(answer.begin), prompts.push_back(answer.prompt);
    ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
    written.insert(written.end(), answer.written_logs.begin(), answer.written_logs.end());
  }
  Memory& memory = *model_.context().memory;
  const auto row = [&]<class T>(const std::vector<T>& values) {
    return Tensor::of<T>(memory, {std::ssize(values)}, values);
  };
  save_safetensors(folder / kAnswersFile, {{"steps", row(std::vector<int64_t>{first_, shares(), steps_of_answers()})},
                                           {"lengths", row(lengths)},
                                           {"begins", row(begins)},
                                           {"prompts", row(prompts)},
                                           {"ids", row(ids)},
                                           {"written", row(written)},
                                           {"scores", row(scores_)}});
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
  const auto read = [&]<class T>(const char* name, T) {
    return file.load(name, *model_.context().memory).to_vector<T>();
  };
  const auto lengths = read("lengths", int64_t{}), begins = read("begins", int64_t{}),
             prompts = read("prompts", int64_t{});
  const auto ids = read("ids", int32_t{});
  const auto written = read("written", float{});
  const bool same = read("steps", int64_t{}) == std::vector<int64_t>{first, shares(), steps_of_answers()} &&
                    std::ssize(lengths) == shares() * layout_.train_batch();
  scores_ = read("scores", double{});
  if (!same || scores_.size() != lengths.size() * rewards_.size()) return lost;
  answers_.clear();
  auto id = ids.begin();
  auto log = written.begin();
  for (size_t i = 0; i < lengths.size(); ++i) {
    Answer& answer = answers_.emplace_back();
    answer.prompt = prompts[i], answer.begin = begins[i];
    answer.ids.assign(id, id + lengths[i]), answer.written_logs.assign(log, log + lengths[i]);
    id += lengths[i], log += lengths[i];
  }
  first_ = first;
  pack();
  if (reference_ != nullptr) ask_reference();
  take_scores();
  return "";
}

// --- StepSource ---

void PolicyRun::require_step(int64_t step) const { require(step == step_, "the answers are of another step"); }

std::vector<Batch> PolicyRun::batches(int64_t step, Memory& memory) const {
  require_step(step);
  const Share& share = shares_.at(static_cast<size_t>(share_of(step)));
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < packing_.layout_of(share.parts).accumulation; ++micro)
    batches.push_back(make_batch(share, micro, memory, /*places=*/false));
  return batches;
}

Batch PolicyRun::make_batch(const Share& share, int64_t micro, Memory& memory, bool places) const {
  std::vector<JudgedAnswer> judged;
  for (const int64_t place : share.parts[static_cast<size_t>(packing_.layout_of(share.parts).part(micro))]) {
    const int64_t number = share.number * layout_.train_batch() + place;
    const Answer& answer = answers_[static_cast<size_t>(number)];
    judged.push_back({.ids = answer.ids,
                      .begin = answer.begin,
                      .number = number,
                      .wanted = std::span(&answer.advantage, 1),
                      .written = answer.written_logs});
    if (!places) judged.back().known = answer.known;
  }
  return batch_of_answers(memory, judged, {.length = share.row_tokens, .places = places});
}

double PolicyRun::weight_of(const Answer& answer) const {
  return plan_.alignment.policy_loss.counts_tokens() ? static_cast<double>(answer.written().size()) : 1;
}

double PolicyRun::weight_of_step(int64_t step) const { return weight_of_step(step, 0, layout_.world_size); }

double PolicyRun::weight_of_step(int64_t step, int first, int ranks) const {
  require_step(step);
  double weight = 0;
  for (const int64_t place : packing_.places_of(shares_.at(static_cast<size_t>(share_of(step))).parts, first, ranks))
    weight += weight_of(learned()[static_cast<size_t>(place)]);
  return weight;
}

int64_t PolicyRun::tokens_of_step(int64_t step) const {
  if (step != step_) return layout_.train_batch() * plan_.layout.seq_length;
  int64_t tokens = 0;
  for (const Answer& answer : learned()) tokens += std::ssize(answer.ids);
  return tokens;
}

}  // namespace nought
