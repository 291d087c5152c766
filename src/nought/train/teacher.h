// Teacher: the model that a run imitates which learns by distillation (gkd).
//
// Design goals: its weights lie beside those that are trained, frozen, over the same ranks and at the same stage, as
// those of a reference do; it reads each token once, and its logits exist for some tokens at a time, while the head of
// the model that is trained runs. Non-goals: vocabularies that differ, which no divergence compares.
#pragma once

#include <memory>
#include <span>

#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The config of the folder of a plan's teacher. ConfigError unless it is a language model that the run's ranks can
/// share.
ModelConfig teacher_config(const RunPlan& plan);
/// ConfigError unless what it says of tokens can be compared with what a model with this vocabulary says.
void check_teacher(const RunPlan& plan, int64_t vocab_size);
/// ConfigError unless it reads the tokens that this tokenizer gives, and as many as sequences of the run have.
void check_teacher_reads(const RunPlan& plan, const Tokenizer& tokenizer);

/// Adds Batch::teacher to batches: what the model says of them. Collective.
void ask_teacher(ShardedModel& model, Decoder& decoder, std::span<Batch> batches, double temperature);

/// The loss of a model that learns from what it says; it outlives the objective.
std::shared_ptr<const Objective> distil_objective(Decoder& decoder, double beta, double temperature);

class Teacher {
 public:
  /// Loads it. Collective.
  Teacher(const RunPlan& plan, const Mesh& mesh, const Context& context);
  Teacher(const Teacher&) = delete;
  Teacher& operator=(const Teacher&) = delete;

  /// Adds what it says to batches. Collective.
  void ask(std::span<Batch> batches) { ask_teacher(model_, decoder_, batches, temperature_); }
  std::shared_ptr<const Objective> objective(double beta) { return distil_objective(decoder_, beta, temperature_); }

 private:
  Decoder decoder_;
  ShardedModel model_;
  double temperature_;
};

}  // namespace nought
