#include "nought/train/probe_ppo.h"

#include <algorithm>

#include "nought/data/answer_batch.h"
#include "nought/io/safetensors.h"
#include "nought/train/valued_answers.h"

namespace nought {

PpoInput read_ppo_input(const Context& context, const std::string& path, int64_t vocab_size,
                        const AlignmentPlan& plan) {
  const SafetensorsFile file(path);
  PpoInput input;
  input.rows = read_answer_rows(context, file, vocab_size);
  const int64_t most = plan.policy_loss.max_completion_length;
  for (size_t row = 0; row < input.rows.ids.size(); ++row) {
    const int64_t begin = input.rows.begins[row], tokens = std::ssize(input.rows.ids[row]) - begin;
    require<IoError>(begin > 0, "{}: row {} has no prompt, before whose answer something could be expected", path, row);
    require<IoError>(tokens <= most, "{}: the answer of row {} has {} tokens, and alignment.response_length is {}",
                     path, row, tokens, most);
  }
  const std::vector<float> scores = numbers_of(context, file, "scores", {std::ssize(input.rows.ids)});
  input.scores.assign(scores.begin(), scores.end());
  input.written = numbers_by_token(context, file, "old_per_token_logps", input.rows);
  input.known = numbers_by_token(context, file, "ref_per_token_logps", input.rows);
  input.values = numbers_by_token(context, file, "values", input.rows);
  return input;
}

namespace {

/// The two losses, and what is learned of both.
void add_losses(const Context& context, const PpoOptions& options, double of_policy, double of_values,
                ProbeOutput& output) {
  const double loss = of_policy + options.value_coef * of_values;
  for (const auto& [name, number] :
       {std::pair{"policy_loss", of_policy}, std::pair{"value_loss", of_values}, std::pair{"loss", loss}})
    add_numbers(context, name, {}, std::span(&number, 1), output);
}

/// Answers that are probed, and this rank's batches of them.
struct ProbedAnswers {
  ShardedModel& model;
  ValuedAnswers valued;
  int64_t micro_batches;
  std::vector<PolicyAnswer> answers = {};
  std::vector<int64_t> lengths = {};

  std::vector<Batch> batches(bool of_values) const {
    Memory& memory = *model.context().memory;
    return probe_batches(std::ssize(answers), model.mesh().group(Group::samples), micro_batches, [&](Interval own) {
      std::vector<JudgedAnswer> texts;
      std::vector<int64_t> numbers;
      for (int64_t row = own.begin; row < own.end; ++row) {
        const PolicyAnswer& answer = answers[static_cast<size_t>(row)];
        texts.push_back({.ids = answer.ids, .begin = answer.begin, .number = row});
        numbers.push_back(row);
      }
      return of_values ? valued.batch(memory, answers, numbers, {}) : batch_of_answers(memory, texts, {.places = true});
    });
  }
  MakeBatches each(bool of_values) const {
    return [this, of_values](const auto& take) {
      for (const Batch& batch : batches(of_values)) take(batch);
    };
  }
  /// The values of the input, of the places that have some.
  std::vector<float> given_values(const PpoInput& input) const {
    std::vector<float> all;
    for (size_t row = 0; row < answers.size(); ++row) {
      const auto first = input.values[row].begin() + answers[row].begin - 1;
      all.insert(all.end(), first, first + valued.places_of(static_cast<int64_t>(row)));
    }
    return all;
  }
};

/// Fills in what the input lacks. Collective.
void ask_models(ProbedAnswers& probed, ShardedModel& model, Decoder& decoder, Engine& engine, const PpoInput& input,
                const AlignmentPlan& plan, const AskReference& ask) {
  const auto fill = [&](std::vector<float> PolicyAnswer::*member, const std::vector<std::vector<float>>& given,
                        const auto& find) {
    const TokenLogs found = given.empty() ? find() : TokenLogs();
    for (size_t i = 0; i < probed.answers.size(); ++i)
      probed.answers[i].*member = given.empty() ? found.of(static_cast<int64_t>(i), probed.lengths[i]) : given[i];
  };
  fill(&PolicyAnswer::written_logs, input.written, [&] {
    return token_logs(engine, model, decoder, probed.each(false), probed.lengths, plan.policy_loss.temperature);
  });
  if (plan.has_reference())
    fill(&PolicyAnswer::known, input.known, [&] { return ask(probed.each(false), probed.lengths); });
  probed.valued.begin(probed.answers);
  if (input.values.empty())
    probed.valued.ask(probed.each(true));
  else
    probed.valued.take_values(probed.given_values(input));
  probed.valued.judge(probed.answers, input.scores);
}

/// Numbers of the places of answers in the rows of the input. from: how far before the answer they begin.
void add_rows(const Context& context, const std::string& name, const ProbedAnswers& probed, int64_t from,
              const std::function<std::span<const double>(size_t)>& of, ProbeOutput& output) {
  const auto rows = static_cast<size_t>(std::ssize(probed.answers));
  const int64_t length = *std::max_element(probed.lengths.begin(), probed.lengths.end());
  std::vector<double> all(rows * static_cast<size_t>(length));
  for (size_t row = 0; row < rows; ++row) {
    const std::span<const double> numbers = of(row);
    std::copy(numbers.begin(), numbers.end(),
              all.begin() + static_cast<int64_t>(row) * length + probed.answers[row].begin - from);
  }
  add_numbers(context, name, {std::ssize(probed.answers), length}, all, output);
}

}  // namespace

ProbeOutput probe_ppo(ShardedModel& model, Decoder& decoder, ValueModel& values, const PpoInput& input,
                      const AlignmentPlan& plan, bool gradients, const ProbeSteps& steps, const AskReference& ask) {
  const Context& context = model.context();
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  ProbedAnswers probed{model, ValuedAnswers(plan, values), steps.micro_batches};
  for (size_t row = 0; row < input.rows.ids.size(); ++row) {
    PolicyAnswer& answer = probed.answers.emplace_back();
    answer.ids = input.rows.ids[row], answer.begin = input.rows.begins[row];
    probed.lengths.push_back(std::ssize(answer.ids));
  }
  ask_models(probed, model, decoder, engine, input, plan, ask);
  const std::shared_ptr<PpoTargets> targets = probed.valued.targets();
  double tokens = 0;
  for (const PolicyAnswer& answer : probed.answers) tokens += static_cast<double>(answer.written().size());
  decoder.set_objective(std::make_shared<PpoObjective>(plan.ppo->options, plan.policy_loss.temperature, targets));
  auto [policy_loss, output] = probe_pass(engine, model, decoder, probed.batches(false), tokens, gradients);
  PpoOptions whole = plan.ppo->options;
  if (whole.value_coef == 0) whole.value_coef = 1, gradients = false;  // nothing is learned of values
  values.set_objective(std::make_shared<SequenceObjective>(loss_of_values(whole, targets), 1));
  const auto places = static_cast<double>(targets->old_values.size());
  const auto [weighed, of_values] =
      probe_pass(values.engine(), values.model(), values.decoder(), probed.batches(true), places, gradients);
  if (model.mesh().world().rank() != 0) return {};
  for (const auto& [name, gradient] : of_values) output.emplace_back("value_model." + name, gradient);
  const auto of_places = [&](const std::vector<double>& all) {
    return [&probed, &all](size_t row) {
      size_t first = 0;
      for (size_t i = 0; i < row; ++i) first += static_cast<size_t>(probed.valued.places_of(static_cast<int64_t>(i)));
      return std::span(all).subspan(first, static_cast<size_t>(probed.valued.places_of(static_cast<int64_t>(row))));
    };
  };
  add_rows(context, "values", probed, 1, of_places(targets->old_values), output);
  add_rows(context, "returns", probed, 1, of_places(targets->returns), output);
  add_rows(
      context, "advantages", probed, 0,
      [&](size_t row) { return std::span<const double>(targets->answers[row].advantages); }, output);
  add_losses(context, plan.ppo->options, policy_loss, weighed / whole.value_coef, output);
  return output;
}

// --- numbers alone ---

bool holds_ppo_numbers(const std::string& path) {
  const SafetensorsFile file(path);
  return file.find("input_ids") == nullptr && file.find("new_logprobs") != nullptr;
}

namespace {

/// Numbers of answers, a row for each.
struct PpoRows {
  int64_t rows = 0, length = 0;
  std::vector<int64_t> tokens = {};
  std::vector<float> scores = {}, written = {}, known = {}, values = {}, now = {}, values_now = {};

  size_t at(size_t row, size_t t) const { return row * static_cast<size_t>(length) + t; }
  size_t tokens_of(size_t row) const { return static_cast<size_t>(tokens[row]); }
  size_t places_of(size_t row) const { return static_cast<size_t>(std::min(tokens[row] + 1, length)); }
};

PpoRows read_ppo_rows(const Context& context, const std::string& path) {
  const SafetensorsFile file(path);
  const TensorEntry& entry = file.at("new_logprobs");
  require<IoError>(entry.shape.rank() == 2 && entry.shape.numel() > 0, "{}: new_logprobs must be F32 [rows, length]",
                   path);
  PpoRows of{.rows = entry.shape[0], .length = entry.shape[1]};
  const TensorEntry& lengths = file.at("response_length");
  require<IoError>(lengths.dtype == DType::i64 && lengths.shape == Shape{of.rows},
                   "{}: response_length must be I64 [{}]", path, of.rows);
  of.tokens = file.load("response_length", *context.memory).to_vector<int64_t>();
  for (const int64_t tokens : of.tokens)
    require<IoError>(0 < tokens && tokens <= of.length, "{}: response_length {} of {} tokens", path, tokens, of.length);
  of.scores = numbers_of(context, file, "scores", {of.rows});
  const auto read = [&](const char* name) { return numbers_of(context, file, name, {of.rows, of.length}); };
  of.written = read("logprobs"), of.known = read("ref_logprobs"), of.values = read("values");
  of.now = read("new_logprobs"), of.values_now = read("new_values");
  return of;
}

}  // namespace

ProbeOutput probe_ppo_numbers(const Context& context, const std::string& path, const AlignmentPlan& plan) {
  const PpoRows rows = read_ppo_rows(context, path);
  const PpoOptions& options = plan.ppo->options;
  std::vector<PpoAnswer> answers;
  double tokens = 0, places = 0;
  for (size_t row = 0; row < rows.tokens.size(); ++row) {
    const auto of = [&](const std::vector<float>& all, size_t count) {
      return std::span(all).subspan(rows.at(row, 0), count);
    };
    const size_t own = rows.tokens_of(row);
    answers.push_back({.written = of(rows.written, own),
                       .known = options.kl_coef > 0 ? of(rows.known, own) : std::span<const float>(),
                       .values = of(rows.values, rows.places_of(row)),
                       .score = rows.scores[row]});
    tokens += static_cast<double>(own), places += static_cast<double>(rows.places_of(row));
  }
  const std::vector<PpoWorth> worth = worth_of(options, answers);
  const size_t all = rows.now.size();
  std::vector<double> rewards(all), advantages(all), returns(all), slopes(all), value_slopes(all);
  double policy_loss = 0, value_loss = 0;
  for (size_t row = 0; row < answers.size(); ++row) {
    for (size_t t = 0; t < rows.tokens_of(row); ++t) {
      const size_t at = rows.at(row, t);
      advantages[at] = worth[row].advantages[t];
      const PpoTerm term = ppo_policy_term(options, double{rows.now[at]} - double{rows.written[at]}, advantages[at]);
      policy_loss += term.loss / tokens, slopes[at] = term.slope / tokens;
    }
    for (size_t t = 0; t < rows.places_of(row); ++t) {
      const size_t at = rows.at(row, t);
      rewards[at] = worth[row].rewards[t], returns[at] = worth[row].returns[t];
      const PpoTerm term = ppo_value_term(options, rows.values_now[at], rows.values[at], returns[at]);
      value_loss += term.loss / places, value_slopes[at] = options.value_coef * term.slope / places;
    }
  }
  ProbeOutput output;
  const Shape shape{rows.rows, rows.length};
  for (const auto& [name, numbers] :
       {std::pair{"rewards", &rewards}, std::pair{"advantages", &advantages}, std::pair{"returns", &returns},
        std::pair{"grad.new_logprobs", &slopes}, std::pair{"grad.new_values", &value_slopes}})
    add_numbers(context, name, shape, *numbers, output);
  add_losses(context, options, policy_loss, value_loss, output);
  return output;
}

}  // namespace nought
