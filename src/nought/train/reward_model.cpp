#include "nought/train/reward_model.h"

#include "nought/engine/pipeline_cut.h"
#include "nought/rewards/reward.h"
#include "nought/train/model_beside.h"
#include "nought/train/reference_model.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

template <class Check>
void naming_reward(const RewardConfig& reward, Check&& check) {
  naming_model("reward " + reward_name(reward), reward.path.value, check);
}

}  // namespace

ModelConfig reward_model_config(const RunPlan& plan, const RewardConfig& reward) {
  ModelConfig config;
  naming_reward(reward, [&] {
    config = ModelConfig::from_folder(reward.path.value);
    require<ConfigError>(config.classifier.has_value(),
                         "the model predicts tokens and scores no texts: name the folder of a model that "
                         "alignment.method = \"reward\" has trained, or of another XForSequenceClassification");
    require<ConfigError>(config.classifier->labels == 1, "the model has {} labels, and a reward is one number",
                         config.classifier->labels);
    require<ConfigError>(config.causal, "the model is an encoder ({}), and rewards are of decoders", config.family);
    config.require_loadable(reward.path.value);
    require_shareable(plan, config);
  });
  return config;
}

void check_reward_model(const RunPlan& plan, const RewardConfig& reward, int64_t vocab_size,
                        const Tokenizer& tokenizer) {
  const ModelConfig config = reward_model_config(plan, reward);
  naming_reward(reward, [&] {
    require_same_vocabulary(config, vocab_size);
    require_reads(plan, config, reward.path.value, tokenizer);
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
