// Probe: one forward, and backward, of given tokens in any layout: what `nought probe` writes and golden tests compare.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/train/engine.h"

namespace nought {

/// Token ids and labels as Hugging Face has them: labels are not shifted yet, -100 is ignored. All [batch, length] i64.
/// mask, if defined: 1 for the tokens of a row, 0 for its padding on the left or on the right. Padding is not computed:
/// it has no targets, is no token's context, and its logits are 0.
struct ProbeInput {
  Tensor ids, labels, mask = {};
};
/// Reads input_ids and, if present, labels (default: input_ids) and attention_mask from a safetensors file; checks
/// ranges. IoError.
ProbeInput read_probe_input(const Context& context, const std::string& path, int64_t vocab_size);

/// Named tensors, all f32: "logits" [batch, length, vocab], "loss" [], and with `gradients` "grad.<parameter>".
using ProbeOutput = std::vector<std::pair<std::string, Tensor>>;

/// How a plan's run shards the model; without `gradients` there is no room for them, nor for what an update needs.
ShardedModel::Options probe_sharding(const RunPlan& plan, bool gradients);

/// Runs the rows of the batch spread over the ranks. Collective; the output is on rank 0, empty elsewhere.
ProbeOutput probe(ShardedModel& model, Decoder& decoder, const ProbeInput& input, bool gradients);

/// This rank's rows of the batch, as training sees them: targets shifted. With a mask, their tokens are packed into one
/// row of documents. A rank without rows gets one that counts for nothing.
Batch probe_rows(const Context& context, const ProbeInput& input, int rank, int ranks);
/// How many targets count in the whole batch.
int64_t count_targets(const ProbeInput& input);

}  // namespace nought
