// probe(): one forward pass, and one backward pass, of given tokens in any layout. `nought probe` writes the results,
// and golden tests compare them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/io/safetensors.h"
#include "nought/models/decoder.h"

namespace nought {

/// Token ids and labels as Hugging Face has them: labels are not shifted yet, and label -100 is ignored. All tensors
/// are [batch, length] i64. mask, if it is defined, is 1 for a row's tokens and 0 for its padding, on the left or on
/// the right. Padding is not computed: it has no targets, no token attends to it, and its logits are 0.
struct ProbeInput {
  Tensor ids, labels, mask = {};
};
/// Reads input_ids, and labels and attention_mask if they are present, from a safetensors file, and checks their
/// ranges. Without labels, input_ids are the labels. IoError.
ProbeInput read_probe_input(const Context& context, const std::string& path, int64_t vocab_size);
/// Its input_ids and attention_mask alone; the labels are not defined.
ProbeInput read_probe_rows(const Context& context, const SafetensorsFile& file, int64_t vocab_size);
/// The columns of a row that are no padding.
Interval tokens_of(const ProbeInput& input, int64_t row);

/// Named tensors, all f32: "logits" [batch, length, vocab], "loss" [], and with `gradients` "grad.<parameter>".
using ProbeOutput = std::vector<std::pair<std::string, Tensor>>;

/// [batch, length]: log_probability() of each position's label, the token behind it, by its logits; 0 where there is
/// none or it is ignored. `generate --logprobs` writes the same numbers for tokens that it generates.
Tensor label_log_probabilities(const Context& context, const ProbeInput& input, const Tensor& logits);

/// How the plan's run shards the model. Without `gradients`, nothing is allocated for gradients and updates.
ShardedModel::Options probe_sharding(const RunPlan& plan, bool gradients);

/// How a rank runs its rows: in so many micro-batches of whole rows, or in as many as it has rows, and by these
/// schedules; not given: default_schedule().
struct ProbeSteps {
  int64_t micro_batches = 1;
  std::optional<Schedules> schedule = {};
  std::function<void(std::span<Batch>)> prepare = {};  // adds to batches what the objective reads; empty: nothing
};
/// This rank's micro-batches of so many examples (rows, pairs): each rank has as many neighbours, the last ones fewer,
/// in as many micro-batches as any other. batch_of: gets the examples of one; none where none is left.
std::vector<Batch> probe_batches(int64_t examples, const Communicator& ranks, int64_t micro_batches,
                                 const std::function<Batch(Interval examples)>& batch_of);
/// The gradients of a pass, which are dropped, on rank 0: "grad.<parameter>", of an adapter as its file has them.
/// Collective.
ProbeOutput take_gradients(ShardedModel& model, const Decoder& decoder);
/// A pass over batches that weigh so much together (Objective::weight): its loss, and with `gradients` what
/// take_gradients() gives. Collective.
struct ProbePass {
  double loss = 0;
  ProbeOutput output = {};
};
ProbePass probe_pass(Engine& engine, ShardedModel& model, const Decoder& decoder, std::span<const Batch> batches,
                     double weight, bool gradients);
/// Adds a tensor of these numbers, f32.
void add_numbers(const Context& context, const std::string& name, const Shape& shape, std::span<const double> values,
                 ProbeOutput& output);
/// The micro-batches of each of so many ranks.
int64_t probe_micro_batches(const ProbeInput& input, int ranks, int64_t most);

/// Spreads the rows of the batch over the ranks and runs them. Collective. Rank 0 gets the output, the others an empty
/// one. The loss that balances experts is one of each micro-batch.
ProbeOutput probe(ShardedModel& model, Decoder& decoder, const ProbeInput& input, bool gradients,
                  const ProbeSteps& steps = {});

/// This rank's rows of the batch, with shifted targets as in training. With a mask, their tokens are packed into one
/// row of documents. A rank without rows gets a placeholder of one row.
Batch probe_rows(const Context& context, const ProbeInput& input, int rank, int ranks);
/// The number of targets in the whole batch that are not ignored.
int64_t count_targets(const ProbeInput& input);

}  // namespace nought
