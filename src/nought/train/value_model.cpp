#include "nought/train/value_model.h"

#include "nought/engine/pipeline_cut.h"
#include "nought/models/classifier.h"
#include "nought/train/model_beside.h"
#include "nought/train/trainer.h"
#include "nought/weights/grown_weights.h"
#include "nought/weights/hf_folder.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The model that a run trains, without what is its own alone.
RunPlan plan_of_trunk(const RunPlan& plan) {
  RunPlan own = plan;
  own.alignment = {}, own.adapter.reset(), own.adapter_dir.clear();
  return own;
}

/// The folder that the value model begins with; "": the model of the plan is written inline.
std::string value_folder(const RunPlan& plan) {
  const std::string& given = plan.alignment.ppo->value_model;
  return given.empty() ? plan.model_dir : given;
}

}  // namespace

ModelConfig value_model_config(const RunPlan& given) {
  const RunPlan plan = with_model_folder(given);
  const std::string folder = value_folder(plan);
  ModelConfig config;
  naming_model(plan.alignment.ppo->value_place, folder.empty() ? "model" : folder, [&] {
    const bool own = plan.alignment.ppo->value_model.empty();
    config = own ? model_config_of(plan_of_trunk(plan)) : ModelConfig::from_folder(folder);
    require<ConfigError>(config.causal, "the model is an encoder ({}), and values are of decoders", config.family);
    require<ConfigError>(config.quantization.empty(),
                         "its weights are quantised, and a value model is trained: name another folder");
    config = with_classifier(std::move(config), 1, std::nullopt, std::nullopt, "the model");
    if (!folder.empty()) config.require_loadable(folder);
    require_shareable(plan, config);
  });
  return config;
}

void check_value_model(const RunPlan& given, int64_t vocab_size, const Tokenizer& tokenizer) {
  const RunPlan plan = with_model_folder(given);
  const std::string folder = value_folder(plan);
  const ModelConfig config = value_model_config(plan);
  naming_model(plan.alignment.ppo->value_place, folder.empty() ? "model" : folder, [&] {
    require_same_vocabulary(config, vocab_size);
    if (!plan.alignment.ppo->value_model.empty()) require_reads(plan, config, folder, tokenizer);
  });
}

ValueModel::ValueModel(const RunPlan& plan, const ShardingOptions& sharding, const Mesh& mesh, const Context& context)
    : plan_(plan),
      decoder_(value_model_config(plan), plan.layout.recompute, {},
               ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, value_model_config(plan)),
                          plan.layout.context_method)),
      model_(context, mesh, decoder_, sharding),
      engine_(model_, plan.loss_scale ? LossScaler(*plan.loss_scale) : LossScaler(), plan.gradient_factor,
              plan.on_nonfinite) {
  engine_.set_schedule(schedule_at(mesh, plan.layout.pipeline));
}

std::string ValueModel::load_start() {
  const InitialState fresh(plan_.seed);
  const std::string folder = value_folder(plan_);
  if (folder.empty()) {
    model_.load(fresh);
    return "";
  }
  const ModelSource source(FoundModel{folder});
  model_.load(GrownWeights(source.weights(), source.model(), fresh));
  if (source.config().classifier) return "";
  return fmt::format("the head of the value model, {}, begins with random weights from seed {}", folder, plan_.seed);
}

// --- steps ---

std::vector<double> ValueModel::values(const MakeBatches& batches, int64_t count) {
  std::vector<double> values = sequence_sums(engine_, model_, decoder_, batches, count);
  model_.settle();
  return values;
}

StepResult ValueModel::step(std::span<const Batch> batches, double weight, double lr) {
  return engine_.step(batches, weight, lr, plan_.gradient_clipping);
}

// --- folders ---

std::string ValueModel::save(const fs::path& folder, int64_t step, const std::string& program) {
  CheckpointInfo info{.step = step,
                      .world_size = model_.mesh().world().size(),
                      .zero_stage = plan_.layout.zero_stage,
                      .skipped = engine_.skipped(),
                      .loss_scale = engine_.scaler().state(),
                      .model_state = decoder_.state(),
                      .written_by = program};
  CheckpointWriter writer(model_, {}, /*with_frozen=*/true, /*beside_training=*/false);
  writer.begin({.info = std::move(info), .folder = folder});
  return writer.finish().failure;
}

void ValueModel::resume(const fs::path& checkpoint) {
  const fs::path folder = checkpoint / kValueModelFolder;
  require<IoError>(fs::is_directory(folder),
                   "{} has no {}: it is of a run without a value model: begin a new run from its weights",
                   checkpoint.string(), kValueModelFolder);
  const Checkpoint states(folder, decoder_);
  const CheckpointInfo& info = states.info();
  engine_.set_skipped(info.skipped);
  model_.load(states, info.step - info.skipped);
  if (const std::string dropped = states.fill_rank_states(model_); !dropped.empty())
    require<ConfigError>(!model_.optimizer().needs_rank_local_tensors(),
                         "{}; this optimizer cannot go on without: resume on as many ranks, or start a new run from "
                         "the exported weights",
                         dropped);
  if (plan_.loss_scale) engine_.scaler().restore(info.loss_scale);
}

void ValueModel::export_to(const fs::path& folder, const TokenizerExport& tokenizer) {
  if (model_.mesh().world().rank() == 0) fs::create_directories(folder);
  export_hf_folder(model_, decoder_.config(), tokenizer, folder, plan_.max_shard_bytes);
}

}  // namespace nought
