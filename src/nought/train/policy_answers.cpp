#include "nought/train/policy_answers.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "nought/base/json.h"
#include "nought/base/math.h"
#include "nought/comm/flight_recorder.h"
#include "nought/data/answer_batch.h"
#include "nought/tensor/random.h"
#include "nought/train/draw_answers.h"

namespace nought {

namespace {

/// Rows are filled up to a multiple of this share of the longest that there may be: steps want one of few sizes of
/// memory, and short answers do not cost as much as long ones.
constexpr int64_t kRowSizes = 8;

OrderedJson ordered_number(double value) { return std::isnan(value) ? OrderedJson() : OrderedJson(value); }

void add_lengths(const std::string& name, const std::vector<double>& lengths, NamedNumbers& numbers) {
  if (lengths.empty()) return;
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  numbers.insert(numbers.end(), {{"completions/mean_" + name, moments_of(lengths).mean},
                                 {"completions/min_" + name, *least},
                                 {"completions/max_" + name, *most}});
}

}  // namespace

PolicyAnswers::PolicyAnswers(const PolicySetup& setup, std::shared_ptr<const AnswerData> prompts,
                             const Options& options)
    : setup_(setup), prompts_(std::move(prompts)), options_(options), packing_(options.layout, options.whole_shares) {
  if (setup_.values != nullptr) valued_.emplace(setup_.plan.alignment, *setup_.values);
}

// --- what they are ---

std::vector<std::vector<int32_t>> PolicyAnswers::draw(const std::vector<int64_t>& prompts,
                                                      const std::string& occasion) const {
  std::vector<AnswerRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int64_t member = 0; member < options_.generations; ++member)
      requests.push_back({prompts_->answer(2 * prompts[i]).ids,
                          stable_hash(fmt::format("{} {} {} {}", setup_.plan.seed, occasion, i, member))});
  return draw_answers(setup_.plan, setup_.model, setup_.decoder, requests,
                      rollout_options(alignment(), setup_.stop_ids, options_.at_once));
}

void PolicyAnswers::write(const std::vector<int64_t>& prompts, const std::string& occasion) {
  Communicator& world = setup_.model.mesh().world();
  note_phase(world, "rollout");
  const std::vector<std::vector<int32_t>> written = draw(prompts, occasion);
  answers_.clear();
  for (size_t i = 0; i < written.size(); ++i) {
    const int64_t prompt = prompts[i / static_cast<size_t>(options_.generations)];
    const std::span<const int32_t> ids = prompts_->answer(2 * prompt).ids;
    Answer& answer = answers_.emplace_back();
    answer.prompt = prompt, answer.begin = std::ssize(ids);
    answer.ids.assign(ids.begin(), ids.end());
    answer.ids.insert(answer.ids.end(), written[i].begin(), written[i].end());
  }
  pack();
  scores_ = judge();
  if (options_.asks_policy) ask_policy();
  if (setup_.reference != nullptr) ask_reference();
  if (valued_) ask_values();
  take_scores();
}

bool PolicyAnswers::ended(const Answer& answer) const {
  return std::find(setup_.stop_ids.begin(), setup_.stop_ids.end(), answer.ids.back()) != setup_.stop_ids.end();
}

std::string PolicyAnswers::text_of(const Answer& answer) const {
  const std::span<const int32_t> ids = answer.written();
  return setup_.tokenizer.decode(ids.first(ids.size() - (ended(answer) ? 1 : 0)));
}

void PolicyAnswers::append_to(const std::filesystem::path& file, int64_t step) const {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::app);
  for (size_t i = 0; i < answers_.size(); ++i) {
    const Answer& answer = answers_[i];
    OrderedJson line{{"step", step + 1},
                     {"prompt", OrderedJson::parse(prompts_->columns(answer.prompt)).at("prompt")},
                     {"completion", answer.text},
                     {"ended", ended(answer)}};
    for (size_t k = 0; k < functions(); ++k)
      line["rewards"][reward_name(alignment().rewards[k])] = ordered_number(scores_[i * functions() + k]);
    line["reward"] = ordered_number(answer.reward);
    if (!alignment().ppo) line["advantage"] = answer.wanted[0];
    out << line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
  }
  require<IoError>(static_cast<bool>(out.flush()), "{}: could not be written: is the disk full?", file.string());
}

// --- what they are worth ---

std::vector<double> PolicyAnswers::judge() {
  std::vector<Json> columns;  // one for each group
  const auto list = [&] {
    const auto group = static_cast<size_t>(options_.generations);
    std::vector<WrittenAnswer> written;
    columns.reserve(answers_.size() / group);
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (i % group == 0) columns.push_back(Json::parse(prompts_->columns(answers_[i].prompt)));
      answers_[i].text = text_of(answers_[i]);
      written.push_back({columns.back(), answers_[i].text, answers_[i].written()});
    }
    return written;
  };
  const auto scored = [&](std::optional<int64_t> pad, const auto& take) {
    make_batches(shares_, {.scored = true, .pad_token_id = pad}, take);
  };
  return setup_.judges.scores(std::ssize(answers_), list, scored);
}

void PolicyAnswers::take_scores() {
  const AlignmentPlan& plan = alignment();
  const std::vector<double> totals = total_rewards(scores_, plan.reward_weights);
  if (plan.ppo) return take_worth(totals);
  std::vector<double> compared = totals, divergences, advantages;
  if (plan.penalises_divergence())
    for (Answer& answer : answers_) {
      answer.divergence = 0;
      for (auto at = static_cast<size_t>(answer.begin); counts(answer) && at < answer.ids.size(); ++at)
        answer.divergence += double{answer.written_logs[at]} - double{answer.known[at]};
      divergences.push_back(answer.divergence);
      // Learned from once, the policy is the one that wrote: its ratio to itself is 1 to the last digit.
      if (options_.is_learned_once) answer.written_logs.clear();
      answer.known.clear();
    }
  if (plan.leave_one_out) {
    compared = penalised_rewards(*plan.leave_one_out, totals, divergences);
    advantages = advantages_over_others(*plan.leave_one_out, compared, options_.generations);
  } else {
    advantages = advantages_of(scores_, plan.reward_weights, options_.generations, plan.reward_scale);
  }
  for (size_t i = 0; i < answers_.size(); ++i) {
    answers_[i].reward = totals[i], answers_[i].compared = compared[i];
    answers_[i].wanted = {advantages[i], counts(answers_[i]) ? 1.0 : 0.0};
  }
}

void PolicyAnswers::take_worth(const std::vector<double>& totals) {
  const PpoOptions& options = alignment().ppo->options;
  std::vector<double> scores = totals;
  for (size_t i = 0; i < answers_.size(); ++i) {
    answers_[i].reward = answers_[i].compared = totals[i], answers_[i].wanted = {0, 1};
    if (options.missing_eos_penalty && !ended(answers_[i])) scores[i] -= *options.missing_eos_penalty;
  }
  if (valued_) valued_->judge(answers_, scores);
}

void PolicyAnswers::ask_values() {
  note_phase(setup_.model.mesh().world(), "values");
  valued_->begin(answers_);
  valued_->ask([this](const auto& take) {
    for (const Share& share : shares_) each_value_batch(share.number, take);
  });
}

void PolicyAnswers::ask_policy() {
  note_phase(setup_.model.mesh().world(), "old log-probabilities");
  const TokenLogs logs = token_logs(setup_.engine, setup_.model, setup_.decoder, batches_of_places(), lengths(),
                                    alignment().policy_loss.temperature);
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].written_logs = logs.of(static_cast<int64_t>(i), std::ssize(answers_[i].ids));
}

void PolicyAnswers::ask_reference() {
  note_phase(setup_.model.mesh().world(), "reference");
  const TokenLogs logs =
      setup_.reference->token_logs(batches_of_places(), lengths(), alignment().policy_loss.temperature);
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].known = logs.of(static_cast<int64_t>(i), std::ssize(answers_[i].ids));
}

double PolicyAnswers::least_entropy(int64_t share) const {
  note_phase(setup_.model.mesh().world(), "entropies");
  const auto own = std::span(shares_).subspan(static_cast<size_t>(share), 1);
  const TokenLogs entropies = token_logs(
      setup_.engine, setup_.model, setup_.decoder, [&](const auto& take) { make_batches(own, {.places = true}, take); },
      lengths(), alignment().policy_loss.temperature, TokenNumber::entropy);
  std::vector<double> all;
  for (int64_t i = share * options_.share; i < (share + 1) * options_.share; ++i) {
    const Answer& answer = answers_[static_cast<size_t>(i)];
    if (!counts(answer)) continue;
    const auto begin = entropies.logs.begin() + entropies.begins[static_cast<size_t>(i)];
    all.insert(all.end(), begin + answer.begin, begin + std::ssize(answer.ids));
  }
  return all.empty() ? 0 : quantile_of(std::move(all), 1 - alignment().top_entropy);
}

NamedNumbers PolicyAnswers::metrics(int64_t share) const {
  std::vector<double> rewards, compared, zero, lengths, terminated;
  // What a value model makes of answers is one thing for all that are written at once.
  const std::span<const Answer> answers = valued_ ? std::span<const Answer>(answers_) : of_share(share);
  const size_t first = valued_ ? 0 : static_cast<size_t>(share) * per_share();
  for (const Answer& answer : answers) {
    rewards.push_back(answer.reward), compared.push_back(answer.compared);
    lengths.push_back(static_cast<double>(answer.written().size()));
    if (ended(answer)) terminated.push_back(lengths.back());
  }
  const auto group = static_cast<size_t>(options_.generations);
  for (size_t i = 0; group > 1 && i < compared.size(); i += group)
    zero.push_back(moments_of(std::span(compared).subspan(i, group)).deviation == 0 ? 1 : 0);
  NamedNumbers numbers{{"reward", moments_of(rewards).mean},
                       {"reward_std", moments_of(rewards).deviation},
                       {"frac_reward_zero_std", moments_of(zero).mean}};
  for (size_t k = 0; k < functions(); ++k) {
    std::vector<double> scores;
    for (size_t i = 0; i < rewards.size(); ++i) scores.push_back(scores_[(first + i) * functions() + k]);
    const std::string name = "rewards/" + reward_name(alignment().rewards[k]);
    const Moments moments = moments_of(scores);
    numbers.emplace_back(name + "/mean", moments.mean);
    numbers.emplace_back(name + "/std", moments.deviation);
  }
  add_lengths("length", lengths, numbers), add_lengths("terminated_length", terminated, numbers);
  numbers.emplace_back("completions/clipped_ratio",
                       1 - static_cast<double>(terminated.size()) / static_cast<double>(lengths.size()));
  if (valued_) {
    for (const auto& [name, value] : valued_->metrics())
      if (name != "objective/kl" || setup_.reference != nullptr) numbers.emplace_back(name, value);
    numbers.emplace_back("val/num_eos_tokens", static_cast<double>(terminated.size()));
  }
  std::erase_if(numbers, [](const auto& each) { return std::isnan(each.second); });
  return numbers;
}

double PolicyAnswers::divergence(int64_t share) const {
  double sum = 0, tokens = 0;
  for (const Answer& answer : of_share(share))
    if (counts(answer)) sum += answer.divergence, tokens += static_cast<double>(answer.written().size());
  return sum / std::max(tokens, 1.0);
}

// --- what is learned from ---

void PolicyAnswers::pack(std::vector<int64_t> order) {
  if (order.empty()) {
    order.resize(answers_.size());
    std::iota(order.begin(), order.end(), int64_t{0});
  }
  order_ = std::move(order);
  std::vector<int64_t> lengths;
  for (const int64_t number : order_) lengths.push_back(std::ssize(answers_[static_cast<size_t>(number)].ids));
  shares_.clear();
  for (size_t begin = 0; begin < lengths.size(); begin += per_share()) {
    int64_t most = 0;
    Share& share = shares_.emplace_back();
    share.number = std::ssize(shares_) - 1;
    share.parts = packing_.pack(std::span(lengths).subspan(begin, per_share()), options_.room, most);
    share.row_tokens = std::min(options_.room, round_up(most, ceil_div(options_.room, kRowSizes)));
  }
}

void PolicyAnswers::shuffle(const std::string& occasion) {
  std::vector<std::pair<uint64_t, int64_t>> drawn;
  for (int64_t number = 0; number < std::ssize(answers_); ++number)
    drawn.emplace_back(stable_hash(fmt::format("{} {} {} shuffled", setup_.plan.seed, occasion, number)), number);
  std::sort(drawn.begin(), drawn.end());
  std::vector<int64_t> order;
  for (const auto& [hash, number] : drawn) order.push_back(number);
  pack(std::move(order));
}

std::vector<int64_t> PolicyAnswers::numbers_of(const Share& share, int64_t micro) const {
  std::vector<int64_t> numbers;
  for (const int64_t place : share.parts[static_cast<size_t>(packing_.layout_of(share.parts).part(micro))])
    numbers.push_back(number_of(share.number, place));
  return numbers;
}

std::vector<int64_t> PolicyAnswers::lengths() const {
  std::vector<int64_t> lengths;
  lengths.reserve(answers_.size());
  for (const Answer& answer : answers_) lengths.push_back(std::ssize(answer.ids));
  return lengths;
}

void PolicyAnswers::make_batches(std::span<const Share> shares, const AnswerBatchOptions& options,
                                 const std::function<void(const Batch&)>& take) const {
  for (const Share& share : shares)
    for (int64_t micro = 0; micro < packing_.layout_of(share.parts).accumulation; ++micro)
      take(make_batch(share, micro, options, /*known=*/false));
}

MakeBatches PolicyAnswers::batches_of_places() const {
  return [this](const auto& take) { make_batches(shares_, {.places = true}, take); };
}

std::vector<Batch> PolicyAnswers::batches(int64_t share) const {
  std::vector<Batch> batches;
  each_batch(share, [&](Batch batch) { batches.push_back(std::move(batch)); });
  return batches;
}

void PolicyAnswers::each_batch(int64_t share, const std::function<void(const Batch&)>& take) const {
  const Share& own = shares_.at(static_cast<size_t>(share));
  for (int64_t micro = 0; micro < packing_.layout_of(own.parts).accumulation; ++micro)
    take(make_batch(own, micro, {.places = alignment().ppo.has_value()}, /*known=*/!alignment().ppo));
}

void PolicyAnswers::each_value_batch(int64_t share, const std::function<void(const Batch&)>& take) const {
  const Share& own = shares_.at(static_cast<size_t>(share));
  for (int64_t micro = 0; micro < packing_.layout_of(own.parts).accumulation; ++micro)
    take(valued_->batch(*setup_.model.context().memory, answers_, numbers_of(own, micro),
                        {.length = own.row_tokens, .most_positions = setup_.plan.layout.seq_length}));
}

double PolicyAnswers::values(int64_t share) const {
  int64_t values = 0;
  for (int64_t place = 0; place < options_.share; ++place) values += valued_->places_of(number_of(share, place));
  return static_cast<double>(values);
}

Batch PolicyAnswers::make_batch(const Share& share, int64_t micro, AnswerBatchOptions options, bool known) const {
  std::vector<JudgedAnswer> judged;
  for (const int64_t number : numbers_of(share, micro)) {
    const Answer& answer = answers_[static_cast<size_t>(number)];
    judged.push_back({.ids = answer.ids, .begin = answer.begin, .number = number, .wanted = answer.wanted});
    if (known) judged.back().written = answer.written_logs, judged.back().known = answer.known;
  }
  options.length = share.row_tokens, options.most_positions = setup_.plan.layout.seq_length;
  return batch_of_answers(*setup_.model.context().memory, judged, options);
}

double PolicyAnswers::weight(int64_t share, int first, int ranks) const {
  double weight = 0;
  for (const int64_t place : packing_.places_of(shares_.at(static_cast<size_t>(share)).parts, first, ranks)) {
    const Answer& answer = answers_[static_cast<size_t>(number_of(share, place))];
    const double tokens = counts(answer) ? static_cast<double>(answer.written().size()) : 0;
    weight += alignment().policy_loss.counts_tokens() ? tokens : 1;
  }
  return weight;
}

int64_t PolicyAnswers::tokens(int64_t share) const {
  int64_t tokens = 0;
  for (int64_t place = 0; place < options_.share; ++place)
    tokens += std::ssize(answers_[static_cast<size_t>(number_of(share, place))].ids);
  return tokens;
}

int64_t PolicyAnswers::written_tokens(int64_t share) const {
  int64_t tokens = 0;
  for (const Answer& answer : of_share(share)) tokens += std::ssize(answer.written());
  return tokens;
}

// --- checkpoints ---

std::vector<std::pair<std::string, Tensor>> PolicyAnswers::state() const {
  std::vector<int64_t> begins, prompts;
  std::vector<int32_t> ids;
  std::vector<float> written;
  for (const Answer& answer : answers_) {
    begins.push_back(answer.begin), prompts.push_back(answer.prompt);
    ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
    written.insert(written.end(), answer.written_logs.begin(), answer.written_logs.end());
  }
  Memory& memory = *setup_.model.context().memory;
  const auto row = [&]<class T>(const std::vector<T>& values) {
    return Tensor::of<T>(memory, {std::ssize(values)}, values);
  };
  std::vector<std::pair<std::string, Tensor>> state{{"lengths", row(lengths())}, {"begins", row(begins)},
                                                    {"prompts", row(prompts)},   {"ids", row(ids)},
                                                    {"written", row(written)},   {"scores", row(scores_)}};
  if (valued_) state.emplace_back("values", row(valued_->values()));
  return state;
}

bool PolicyAnswers::restore(const SafetensorsFile& file, int64_t count) {
  const auto read = [&]<class T>(const char* name, T) {
    return file.load(name, *setup_.model.context().memory).to_vector<T>();
  };
  answers_.clear(), shares_.clear();
  const auto lengths = read("lengths", int64_t{}), begins = read("begins", int64_t{}),
             prompts = read("prompts", int64_t{});
  const auto ids = read("ids", int32_t{});
  const auto written = read("written", float{});
  scores_ = read("scores", double{});
  if (std::ssize(lengths) != count || scores_.size() != lengths.size() * functions()) return false;
  auto id = ids.begin();
  auto log = written.begin();
  for (size_t i = 0; i < lengths.size(); ++i) {
    Answer& answer = answers_.emplace_back();
    answer.prompt = prompts[i], answer.begin = begins[i];
    answer.ids.assign(id, id + lengths[i]), answer.written_logs.assign(log, log + lengths[i]);
    id += lengths[i], log += lengths[i];
  }
  pack();
  if (valued_) {
    valued_->begin(answers_);
    if (!file.find("values") || !valued_->take_values(read("values", float{}))) return false;
  }
  if (setup_.reference != nullptr) ask_reference();
  take_scores();
  return true;
}

}  // namespace nought
