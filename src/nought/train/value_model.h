// ValueModel: the model of proximal policy optimization that says how an answer will be judged before it is written to
// its end, and learns that while the policy learns to write.
//
// Design goals: a classifier with one label, whose head values each token; it has a trunk, states and an optimizer of
// its own, over the same ranks and at the same stage as the policy, and makes a step in each step of it. Non-goals: a
// head on the trunk of the policy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/checkpoint/checkpoint.h"
#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/engine/sequence_pass.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/text/tokenizer_export.h"

namespace nought {

/// In a checkpoint and beside the exported policy: the folder of the value model.
inline constexpr const char* kValueModelFolder = "value_model";

/// The config of the value model of a plan. ConfigError unless the run's ranks can share it, or if its head has more
/// labels than one.
ModelConfig value_model_config(const RunPlan& plan);
/// ConfigError unless it reads the tokens that a model with this vocabulary and tokenizer writes, and as many at once
/// as the run's sequences have.
void check_value_model(const RunPlan& plan, int64_t vocab_size, const Tokenizer& tokenizer);

class ValueModel {
 public:
  /// sharding: of a run the options of its layout. Collective, as are all others but config().
  ValueModel(const RunPlan& plan, const ShardingOptions& sharding, const Mesh& mesh, const Context& context);
  ValueModel(const ValueModel&) = delete;
  ValueModel& operator=(const ValueModel&) = delete;

  /// Loads what a run begins with. Returns a line for the user, or "".
  std::string load_start();
  /// Loads the states of a checkpoint of the run. IoError if it has none.
  void resume(const std::filesystem::path& checkpoint);
  /// Saves the states of this step to the folder. Returns what it failed with, the same on all ranks, or "".
  std::string save(const std::filesystem::path& folder, int64_t step, const std::string& program);
  /// Writes the weights as transformers has them.
  void export_to(const std::filesystem::path& folder, const TokenizerExport& tokenizer);

  /// What the model expects at each of `count` places, which the batches have as sequences of their own
  /// (batch_of_places()).
  std::vector<double> values(const MakeBatches& batches, int64_t count);
  /// What the next two learn from. share_of_context: see loss_of_values().
  void set_objective(std::shared_ptr<const Objective> objective) { decoder_.set_objective(std::move(objective)); }
  StepResult step(std::span<const Batch> batches, double weight, double lr);
  double evaluate(const Batch& batch, double weight) { return engine_.evaluate(std::span(&batch, 1), weight); }

  const ModelConfig& config() const { return decoder_.config(); }
  Decoder& decoder() { return decoder_; }
  ShardedModel& model() { return model_; }
  Engine& engine() { return engine_; }

 private:
  const RunPlan& plan_;
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
};

}  // namespace nought
