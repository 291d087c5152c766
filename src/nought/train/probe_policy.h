// probe_policy(): the loss of answers that a policy wrote itself, by their rewards, and its gradients, in any layout.
// `nought probe` with alignment.method = grpo or rloo writes them.
#pragma once

#include <string>
#include <vector>

#include "nought/config/alignment_plan.h"
#include "nought/train/probe_pairs.h"

namespace nought {

/// Answers in rows, in groups of those to one prompt.
struct PolicyInput {
  PairInput rows;
  std::vector<double> rewards, weights;            // [rows, functions], NaN: not scored; [functions]
  std::vector<std::vector<float>> written, known;  // by row and token; empty: none
};
/// Reads input_ids, attention_mask and completion_mask as read_pair_input() does; rewards [rows, functions] f32,
/// reward_weights [functions] (not given: 1); old_per_token_logps and ref_per_token_logps [rows, length] f32, at the
/// place of the token that they are of (without the first, the policy wrote the answers itself just now). IoError; also
/// if the plan asks for a reference and there is none.
PolicyInput read_policy_input(const Context& context, const std::string& path, int64_t vocab_size,
                              const AlignmentPlan& plan);

/// "advantages" [rows], "entropy" [] (the mean over tokens of answers), "loss" [], f32, and with `gradients`
/// "grad.<parameter>". Collective. Rank 0 gets the output, the others an empty one.
ProbeOutput probe_policy(ShardedModel& model, Decoder& decoder, const PolicyInput& input, const AlignmentPlan& plan,
                         bool gradients, const ProbeSteps& steps);

}  // namespace nought
