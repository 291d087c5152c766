#include "nought/train/probe_policy.h"

#include <algorithm>
#include <array>

#include "nought/data/answer_batch.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors.h"
#include "nought/nn/policy_objective.h"

namespace nought {

namespace {

std::vector<float> floats(const Context& context, const SafetensorsFile& file, const std::string& name, int64_t rows) {
  const TensorEntry& entry = file.at(name);
  require<IoError>(entry.dtype == DType::f32 && entry.shape.rank() == 2 && entry.shape[0] == rows,
                   "{}: {} must be F32 with {} rows, got {}{}", file.path().string(), name, rows, name_of(entry.dtype),
                   entry.shape);
  return file.load(name, *context.memory).to_vector<float>();
}

}  // namespace

PolicyInput read_policy_input(const Context& context, const std::string& path, int64_t vocab_size,
                              const AlignmentPlan& plan) {
  const SafetensorsFile file(path);
  PolicyInput input;
  input.rows = read_answer_rows(context, file, vocab_size);
  const int64_t rows = std::ssize(input.rows.ids);
  require<IoError>(rows % plan.generations == 0, "{}: {} rows are no groups of num_generations {}", path, rows,
                   plan.generations);
  const std::vector<float> rewards = floats(context, file, "rewards", rows);
  input.rewards.assign(rewards.begin(), rewards.end());
  const size_t functions = rewards.size() / input.rows.ids.size();
  input.weights.assign(functions, 1);
  if (file.find("reward_weights")) {
    const std::vector<float> weights = file.load("reward_weights", *context.memory).to_vector<float>();
    require<IoError>(weights.size() == functions, "{}: {} reward_weights for {} functions", path, weights.size(),
                     functions);
    input.weights.assign(weights.begin(), weights.end());
  }
  input.written = numbers_by_token(context, file, "old_per_token_logps", input.rows);
  if (!plan.has_reference()) return input;
  require<IoError>(file.find("ref_per_token_logps") != nullptr,
                   "{}: has no ref_per_token_logps, which alignment.beta asks for", path);
  require<IoError>(!plan.penalises_divergence() || !input.written.empty(),
                   "{}: has no old_per_token_logps, whose distance from the reference the rewards of rloo are less by",
                   path);
  input.known = numbers_by_token(context, file, "ref_per_token_logps", input.rows);
  return input;
}

namespace {

std::vector<double> advantages_of(const PolicyInput& input, const AlignmentPlan& plan) {
  if (!plan.leave_one_out) return advantages_of(input.rewards, input.weights, plan.generations, plan.reward_scale);
  std::vector<double> divergences;
  for (size_t row = 0; plan.penalises_divergence() && row < input.rows.ids.size(); ++row) {
    double& sum = divergences.emplace_back();
    for (auto at = static_cast<size_t>(input.rows.begins[row]); at < input.rows.ids[row].size(); ++at)
      sum += double{input.written[row][at]} - double{input.known[row][at]};
  }
  const std::vector<double> rewards =
      penalised_rewards(*plan.leave_one_out, total_rewards(input.rewards, input.weights), divergences);
  return advantages_over_others(*plan.leave_one_out, rewards, plan.generations);
}

/// By row: its advantage, and 0 if it counts nothing.
std::vector<std::array<double, 2>> wanted_of(const PolicyInput& input, const AlignmentPlan& plan,
                                             const std::vector<int64_t>& ends) {
  std::vector<std::array<double, 2>> wanted;
  for (const double advantage : advantages_of(input, plan)) {
    const int32_t last = input.rows.ids[wanted.size()].back();
    const bool ended = std::find(ends.begin(), ends.end(), last) != ends.end();
    wanted.push_back({advantage, ended || !plan.masks_truncated ? 1.0 : 0.0});
  }
  return wanted;
}

/// A policy that is probed, with answers.
struct ProbedPolicy {
  ShardedModel& model;
  Decoder& decoder;
  Engine& engine;
  const PolicyInput& input;
  const AlignmentPlan& plan;
  std::vector<std::array<double, 2>> wanted;
  int64_t micro_batches = 1;

  /// places: for passes that ask about each token.
  std::vector<Batch> batches(bool places) const {
    const PairInput& rows = input.rows;
    return probe_batches(std::ssize(rows.ids), model.mesh().group(Group::samples), micro_batches, [&](Interval own) {
      std::vector<JudgedAnswer> answers;
      for (int64_t row = own.begin; row < own.end; ++row) {
        const auto at = static_cast<size_t>(row);
        JudgedAnswer& answer = answers.emplace_back();
        answer.ids = rows.ids[at], answer.begin = rows.begins[at], answer.number = row;
        answer.wanted = wanted[at];
        if (!input.written.empty() && !places) answer.written = input.written[at];
        if (!input.known.empty() && !places && !plan.leave_one_out) answer.known = input.known[at];
      }
      return batch_of_answers(*model.context().memory, answers, {.places = places});
    });
  }
  /// See PolicyObjective; null: advantages count for all tokens.
  std::shared_ptr<const double> least_entropy() const {
    if (plan.top_entropy >= 1) return nullptr;
    std::vector<int64_t> lengths;
    for (const auto& ids : input.rows.ids) lengths.push_back(std::ssize(ids));
    const auto each = [&](const auto& take) {
      for (const Batch& batch : batches(/*places=*/true)) take(batch);
    };
    const TokenLogs entropies =
        token_logs(engine, model, decoder, each, lengths, plan.policy_loss.temperature, TokenNumber::entropy);
    std::vector<double> all;
    for (size_t row = 0; row < lengths.size(); ++row)
      if (wanted[row][1] != 0) {
        const auto begin = entropies.logs.begin() + entropies.begins[row];
        all.insert(all.end(), begin + input.rows.begins[row], begin + lengths[row]);
      }
    return std::make_shared<double>(all.empty() ? 0 : quantile_of(std::move(all), 1 - plan.top_entropy));
  }
  /// What the loss of all answers is divided by.
  double weight() const {
    double weight = 0;
    for (size_t row = 0; row < wanted.size(); ++row) {
      const auto tokens = static_cast<double>(std::ssize(input.rows.ids[row]) - input.rows.begins[row]);
      weight += plan.policy_loss.counts_tokens() ? wanted[row][1] * tokens : 1;
    }
    return std::max(weight, 1.0);
  }
};

}  // namespace

ProbeOutput probe_policy(ShardedModel& model, Decoder& decoder, const PolicyInput& input, const AlignmentPlan& plan,
                         bool gradients, const ProbeSteps& steps) {
  const Context& context = model.context();
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  const ProbedPolicy policy{
      model, decoder, engine, input, plan, wanted_of(input, plan, decoder.config().eos_token_ids), steps.micro_batches};
  const auto numbers = std::make_shared<PolicyNumbers>();
  decoder.set_objective(std::make_shared<PolicyObjective>(plan.policy_loss, numbers, policy.least_entropy()));
  const std::vector<Batch> batches = policy.batches(/*places=*/false);
  auto [loss, output] = probe_pass(engine, model, decoder, batches, policy.weight(), gradients);
  std::vector<double> sums{numbers->entropy, numbers->tokens};
  sum_over_ranks(model, sums);
  if (model.mesh().world().rank() != 0) return {};
  std::vector<double> advantages;
  for (const auto& [advantage, counts] : policy.wanted) advantages.push_back(advantage);
  add_numbers(context, "advantages", {std::ssize(advantages)}, advantages, output);
  const double entropy = sums[0] / std::max(sums[1], 1.0);
  add_numbers(context, "entropy", {}, std::span(&entropy, 1), output);
  add_numbers(context, "loss", {}, std::span(&loss, 1), output);
  return output;
}

}  // namespace nought
