// RewardModel: a classifier with one label that says how good answers are, beside the model that is trained.
//
// Design goals: it reads the tokens of a prompt with its answer as the model wrote them, so that both must have the
// same vocabulary; its weights are frozen, and lie over the same ranks at the same stage, as those of a reference do.
// Non-goals: models that read texts by a tokenizer or a chat template of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/engine/sequence_pass.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// The config of the folder of a reward of type reward_model. ConfigError unless its head has one label, and the run's
/// ranks can share it.
ModelConfig reward_model_config(const RunPlan& plan, const RewardConfig& reward);
/// ConfigError unless the folder's model reads the tokens that a model with this vocabulary and tokenizer writes, as
/// many as sequences of the run have.
void check_reward_model(const RunPlan& plan, const RewardConfig& reward, int64_t vocab_size,
                        const Tokenizer& tokenizer);

class RewardModel {
 public:
  /// Loads it. Collective.
  RewardModel(const RunPlan& plan, const RewardConfig& reward, const Mesh& mesh, const Context& context);
  RewardModel(const RewardModel&) = delete;
  RewardModel& operator=(const RewardModel&) = delete;

  /// The score of each of `count` texts, by its number. All ranks get those of all. Collective.
  std::vector<double> scores(const MakeBatches& batches, int64_t count);
  /// What its batches are made with.
  std::optional<int64_t> pad_token_id() const { return decoder_.config().classifier->pad_token_id; }

 private:
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
};

}  // namespace nought
