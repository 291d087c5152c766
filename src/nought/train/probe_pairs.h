// probe_pairs(): the loss of pairs of answers, its gradients, and the log-probabilities that it is made of, in any
// layout. `nought probe` with a method of alignment writes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/config/alignment_plan.h"
#include "nought/train/probe.h"

namespace nought {

/// Pairs in rows, the n chosen answers first, then the n rejected ones: [2n, length] i64. Masks are 1 for a row's
/// tokens, and for those of its answer.
struct PairInput {
  std::vector<std::vector<int32_t>> ids;
  std::vector<int64_t> begins;           // where the answer begins in each row
  std::vector<AnswerLabel> labels = {};  // of the first n, if answers are judged one by one: the others are their
                                         // prompts with answers to other ones

  int64_t pairs() const { return static_cast<int64_t>(ids.size()) / 2; }
};
/// Reads input_ids, attention_mask (not given: all 1) and completion_mask; with labels also label, [n] i64, and what is
/// called KL_input_ids and so on. IoError unless answers end their rows.
PairInput read_pair_input(const Context& context, const std::string& path, int64_t vocab_size, bool labels = false);

/// The rows of input_ids, of any number, as read_pair_input() reads them.
PairInput read_answer_rows(const Context& context, const SafetensorsFile& file, int64_t vocab_size);
/// The numbers of a tensor that must be f32 of this shape. IoError.
std::vector<float> numbers_of(const Context& context, const SafetensorsFile& file, const std::string& name,
                              const Shape& shape);
/// The numbers of the tokens of each row in a tensor [rows, length] f32; empty if the file has none. IoError.
std::vector<std::vector<float>> numbers_by_token(const Context& context, const SafetensorsFile& file,
                                                 const std::string& name, const PairInput& rows);

/// This rank's pairs in so many micro-batches, which are as many on each rank. reference: by row, or empty. Sequences
/// have the numbers of their rows.
std::vector<Batch> pair_batches(Memory& memory, const PairInput& input, const AlignmentPlan& plan,
                                std::span<const double> reference, const Communicator& ranks, int64_t micro_batches);

/// "policy_logps" and "ref_logps" [2n] f32, with labels [n] and "kl" [], "loss" [], and with `gradients`
/// "grad.<parameter>". reference: by row, or empty. Collective. Rank 0 gets the output, the others an empty one.
ProbeOutput probe_pairs(ShardedModel& model, Decoder& decoder, const PairInput& input, const AlignmentPlan& plan,
                        std::span<const double> reference, bool gradients, const ProbeSteps& steps);

}  // namespace nought
