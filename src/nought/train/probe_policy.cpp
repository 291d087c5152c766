#include "nought/train/probe_policy.h"

#include <algorithm>

#include "nought/data/answer_batch.h"
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

/// The numbers of each row's tokens: prompts and answers begin their rows.
std::vector<std::vector<float>> by_token(const std::vector<float>& values, const PairInput& rows) {
  const size_t length = values.size() / rows.ids.size();
  std::vector<std::vector<float>> each;
  for (size_t row = 0; row < rows.ids.size(); ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * length);
    each.emplace_back(begin, begin + std::ssize(rows.ids[row]));
  }
  return each;
}

/// This rank's rows in so many micro-batches, as many on each rank.
std::vector<Batch> policy_batches(Memory& memory, const PolicyInput& input, const std::vector<double>& advantages,
                                  const Communicator& ranks, int64_t micro_batches) {
  const int64_t rows = std::ssize(input.rows.ids), each = ceil_div(rows, ranks.size());
  const int64_t size = ceil_div(each, std::clamp<int64_t>(micro_batches, 1, each));
  const int64_t end = std::min((ranks.rank() + 1) * each, rows);
  std::vector<Batch> batches;
  for (int64_t begin = ranks.rank() * each; std::ssize(batches) < ceil_div(each, size); begin += size) {
    std::vector<JudgedAnswer> answers;
    for (int64_t row = begin; row < std::min(begin + size, end); ++row) {
      const auto at = static_cast<size_t>(row);
      JudgedAnswer answer{.ids = input.rows.ids[at], .begin = input.rows.begins[at], .number = row};
      answer.wanted = std::span(&advantages[at], 1);
      if (!input.written.empty()) answer.written = input.written[at];
      if (!input.known.empty()) answer.known = input.known[at];
      answers.push_back(answer);
    }
    batches.push_back(batch_of_answers(memory, answers, {}));
  }
  return batches;
}

}  // namespace

PolicyInput read_policy_input(const Context& context, const std::string& path, int64_t vocab_size,
                              const AlignmentPlan& plan) {
  const SafetensorsFile file(path);
  PolicyInput input;
  input.rows = read_answer_rows(context, path, vocab_size);
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
  if (file.find("old_per_token_logps"))
    input.written = by_token(floats(context, file, "old_per_token_logps", rows), input.rows);
  require<IoError>(plan.policy_loss.beta == 0 || file.find("ref_per_token_logps") != nullptr,
                   "{}: has no ref_per_token_logps, which alignment.beta {} asks for", path, plan.policy_loss.beta);
  if (plan.policy_loss.beta != 0)
    input.known = by_token(floats(context, file, "ref_per_token_logps", rows), input.rows);
  return input;
}

ProbeOutput probe_policy(ShardedModel& model, Decoder& decoder, const PolicyInput& input, const AlignmentPlan& plan,
                         bool gradients, const ProbeSteps& steps) {
  const Context& context = model.context();
  const std::vector<double> advantages =
      advantages_of(input.rewards, input.weights, plan.generations, plan.reward_scale);
  const std::vector<Batch> batches =
      policy_batches(*context.memory, input, advantages, model.mesh().group(Group::samples), steps.micro_batches);
  const auto objective = std::make_shared<PolicyObjective>(plan.policy_loss);
  decoder.set_objective(objective);
  Engine engine(model);
  if (steps.schedule) engine.set_schedule(*steps.schedule);
  double weight = 0;
  for (size_t row = 0; row < input.rows.ids.size(); ++row)
    weight += plan.policy_loss.counts_tokens()
                  ? static_cast<double>(std::ssize(input.rows.ids[row]) - input.rows.begins[row])
                  : 1;
  const double loss = gradients ? engine.accumulate(batches, weight).loss : engine.evaluate(batches, weight);
  ProbeOutput output = gradients ? take_gradients(model, decoder) : ProbeOutput();
  if (model.mesh().world().rank() != 0) return {};
  const auto add = [&](const char* name, const Shape& shape, std::span<const double> values) {
    const std::vector<float> narrow(values.begin(), values.end());
    output.emplace_back(name, Tensor::of<float>(*context.memory, shape, narrow));
  };
  add("advantages", {std::ssize(advantages)}, advantages);
  add("loss", {}, std::span(&loss, 1));
  return output;
}

}  // namespace nought
