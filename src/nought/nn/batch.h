// Batch: the rows of tokens of one forward pass, and where documents begin in them.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/kernels/kernels.h"

namespace nought {

/// Whether an answer is wanted, where answers are judged one by one; one that is not judged has no loss.
enum class AnswerLabel : uint8_t { unjudged, desirable, undesirable };

/// A sequence of tokens that an objective over whole sequences (nn/sequence_objective.h) sees as one.
struct BatchSequence {
  int64_t number = 0;    // among those of the passes that are made together
  double targets = 0;    // of its answer, those that other ranks hold included
  double reference = 0;  // the log-probability of its answer under the reference model
  AnswerLabel label = AnswerLabel::unjudged;
  /// What a classifier's head should say of it (score_loss()); of the chosen answer of a pair, the margin by which it
  /// should be ahead, if there is one; of an answer that a policy wrote, its advantage, and 0 if it counts nothing.
  std::vector<double> wanted = {};
};

/// The sequences of a batch. Two in a row are the chosen and the rejected answer of a pair.
/// of_target: [rows, length] i32, which of them each target belongs to; -1: none. With a classifier's head, the token
/// whose hidden state the head scores belongs to its sequence, and no other one does.
/// likelihood: [rows, length] f32, how much the cross-entropy of each target counts beside; undefined: none does.
/// written, known: [rows, length] f32, the log-probability of each target under the policy that wrote it, and under the
/// reference model; undefined: the same as now, and none.
/// share: what a rank counts of each sequence, where several have parts of it.
struct BatchSequences {
  std::vector<BatchSequence> all = {};
  Tensor of_target = {};
  Tensor likelihood = {};
  Tensor written = {}, known = {};
  double share = 1;
};

/// The id of a target that the loss ignores.
inline constexpr int32_t kIgnoredTarget = -100;

/// input_ids, targets: [rows, length] i32. The loss ignores targets that are kIgnoredTarget.
/// document_starts: for each row the positions at which documents begin, rising, the first always 0. Each document is a
/// sequence of its own: its positions begin at 0, and attention sees no other document. Empty: each row is one
/// sequence.
/// weights: [rows, length] f32, how much the loss of each target counts. Undefined: each counts 1.
/// placeholder: a rank that has nothing to read takes part in what all do together. Its targets are ignored, and its
/// tokens are none of those over which means are taken.
/// row_keys: of a batch to train on, a number for each row that random numbers of the forward pass (dropout) are drawn
/// by: the same wherever the row is computed, and another one each time that the row is read. Empty: nothing is
/// dropped. teacher: [tokens, width], what a teacher's logits of each token are products of (nn/distil_objective.h); it
/// lies on the device. sequences: for objectives over them; host code alone reads them, and the weights are what each
/// target counts in the log-probability of its sequence. Host code makes a batch and reads it (Memory::host_pool());
/// kernels get that of on_device().
struct Batch {
  Tensor input_ids, targets;
  std::vector<std::vector<int32_t>> document_starts = {};
  Tensor weights = {};
  bool placeholder = false;
  std::vector<uint64_t> row_keys = {};
  BatchSequences sequences = {};
  Tensor teacher = {};
};

/// The batch where kernels read it.
inline Batch on_device(const Context& context, const Batch& batch) {
  return {context.on_device(batch.input_ids),
          context.on_device(batch.targets),
          batch.document_starts,
          context.on_device(batch.weights),
          batch.placeholder,
          batch.row_keys,
          {},
          batch.teacher};
}

}  // namespace nought
