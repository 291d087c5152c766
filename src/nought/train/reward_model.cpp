#include "nought/train/reward_model.h"

#include "nought/engine/pipeline_cut.h"
#include "nought/models/context_choice.h"
#include "nought/models/expert_spread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/rewards/reward.h"
#include "nought/train/reference_model.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// Calls check(); its ConfigError gets the name of the reward.
template <class Check>
void naming(const RewardConfig& reward, Check&& check) {
  try {
    check();
  } catch (const ConfigError& error) {
    fail<ConfigError>("reward {}: {}: {}", reward_name(reward), reward.path.value, error.what());
  }
}

}  // namespace

ModelConfig reward_model_config(const RunPlan& plan, const RewardConfig& reward) {
  ModelConfig config;
  naming(reward, [&] {
    config = ModelConfig::from_folder(reward.path.value);
    require<ConfigError>(config.classifier.has_value(),
                         "the model predicts tokens and scores no texts: name the folder of a model that "
                         "alignment.method = \"reward\" has trained, or of another XForSequenceClassification");
    require<ConfigError>(config.classifier->labels == 1, "the model has {} labels, and a reward is one number",
                         config.classifier->labels);
    require<ConfigError>(config.causal, "the model is an encoder ({}), and rewards are of decoders", config.family);
    config.require_loadable(reward.path.value);
    require_cuttable(config, plan.layout.tensor_ranks, plan.layout.ranks);
    require_spreadable(config, plan.layout.expert_ranks, plan.layout.token_ranks() / plan.layout.replicas);
    if (plan.layout.context_method == ContextMethod::heads)
      require_heads_for(config, plan.layout.context_ranks, plan.layout.tensor_ranks, plan.layout.ranks);
    require_stages(plan, config);
  });
  return config;
}

void check_reward_model(const RunPlan& plan, const RewardConfig& reward, int64_t vocab_size,
                        const Tokenizer& tokenizer) {
  const ModelConfig config = reward_model_config(plan, reward);
  naming(reward, [&] {
    require<ConfigError>(config.vocab_size == vocab_size,
                         "the model has {} tokens, and the one that is trained {}: they must read the same tokens",
                         config.vocab_size, vocab_size);
    require<ConfigError>(!holds_tokenizer(reward.path.value) ||
                             make_tokenizer(reward.path.value)->fingerprint() == tokenizer.fingerprint(),
                         "its tokenizer gives texts other tokens than {}: they must be the same", tokenizer.name());
    Decoder(config).require_positions(plan.layout.seq_length);
  });
}

RewardModel::RewardModel(const RunPlan& plan, const RewardConfig& reward, const Mesh& mesh, const Context& context)
    : decoder_(
          reward_model_config(plan, reward), {}, {},
          ModelRanks(mesh, plan.layout.sequence_parallel,
                     pipeline_cut_of(plan, ModelConfig::from_folder(reward.path.value)), plan.layout.context_method)),
      model_(context, mesh, decoder_, reference_sharding(plan.layout)),
      engine_(model_) {
  engine_.set_schedule(schedule_at(mesh, plan.layout.pipeline));
  model_.load(ModelSource(FoundModel{reward.path.value}).weights());
}

std::vector<double> RewardModel::scores(const MakeBatches& batches, int64_t count) {
  std::vector<double> scores = sequence_sums(engine_, model_, decoder_, batches, count);
  model_.settle();
  return scores;
}

}  // namespace nought
