// probe_ppo(): the losses of proximal policy optimization of given answers, of a policy and a value model, and their
// gradients, in any layout; or of given numbers alone. `nought probe` with alignment.method = ppo writes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/config/alignment_plan.h"
#include "nought/train/probe_pairs.h"
#include "nought/train/value_model.h"

namespace nought {

/// Answers in rows. Numbers are by row and token; of values, by the token that says what is expected behind it.
struct PpoInput {
  PairInput rows;
  std::vector<double> scores;
  std::vector<std::vector<float>> written, known, values;  // empty: models are asked
};
/// Reads input_ids, attention_mask and completion_mask as read_pair_input() does; scores [rows] f32; and, if they are
/// there, old_per_token_logps, ref_per_token_logps and values [rows, length] f32. IoError.
PpoInput read_ppo_input(const Context& context, const std::string& path, int64_t vocab_size, const AlignmentPlan& plan);

/// What the reference says of the tokens of such rows. Collective.
using AskReference = std::function<TokenLogs(const MakeBatches& batches, std::span<const int64_t> lengths)>;

/// "advantages", "returns", "values" [rows, length], "policy_loss", "value_loss" and "loss" [], all f32, and
/// with `gradients` "grad.<parameter>" of the policy and "value_model.grad.<parameter>". ask: for input without known.
/// Collective. Rank 0 gets the output, the others an empty one.
ProbeOutput probe_ppo(ShardedModel& model, Decoder& decoder, ValueModel& values, const PpoInput& input,
                      const AlignmentPlan& plan, bool gradients, const ProbeSteps& steps, const AskReference& ask);

/// Whether the file has numbers of answers and no answers.
bool holds_ppo_numbers(const std::string& path);
/// As probe_ppo(), of numbers alone, as tests/golden/align/ppo has them: response_length and scores [rows], logprobs,
/// ref_logprobs, values, new_logprobs and new_values [rows, length]; gradients are "grad.new_logprobs" and
/// "grad.new_values". IoError.
ProbeOutput probe_ppo_numbers(const Context& context, const std::string& path, const AlignmentPlan& plan);

}  // namespace nought
