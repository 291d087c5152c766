// probe_scores(): the scores that a classifier's head gives texts, their loss and its gradients, in any layout. `nought
// probe` of a classifier writes them, also with alignment.method = reward.
#pragma once

#include <string>
#include <vector>

#include "nought/config/alignment_plan.h"
#include "nought/train/probe.h"

namespace nought {

/// Texts in rows; of pairs, the n chosen ones first, then the n rejected ones.
struct ScoreInput {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<double>> wanted;  // each row's; pairs have none
  std::vector<double> margins = {};         // each pair's; empty: none
};
/// Reads input_ids [rows, length] i64 and attention_mask (not given: all 1); labels, [rows] or [rows, labels], i64 or
/// f32; of pairs instead margin, [n] f32, if it is there. IoError.
ScoreInput read_score_input(const Context& context, const std::string& path, const ModelConfig& config, bool pairs);

/// "logits" [rows, labels] and "loss" [], of pairs with margins also "loss.margin" [], f32, and with `gradients`
/// "grad.<parameter>" of "loss". Collective. Rank 0 gets the output, the others an empty one.
ProbeOutput probe_scores(ShardedModel& model, Decoder& decoder, const ScoreInput& input, const AlignmentPlan& plan,
                         bool gradients, const ProbeSteps& steps);

}  // namespace nought
