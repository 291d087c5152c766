#include "nought/train/reference_model.h"

#include "nought/engine/pipeline_cut.h"

namespace nought {

ShardingOptions reference_sharding(const Layout& layout) {
  ShardingOptions options = layout.sharding_options();
  options.training = false;
  options.weight_quantization.reset(), options.qat.reset(), options.sparse_pruning.reset();
  return options;
}

ReferenceModel::Own::Own(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context)
    : decoder(
          config, {}, {},
          ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, config), plan.layout.context_method)),
      model(context, mesh, apply(plan.layout.freezing, decoder), reference_sharding(plan.layout)),
      engine(model) {
  engine.set_schedule(schedule_at(mesh, plan.layout.pipeline));
}

ReferenceModel::ReferenceModel(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context,
                               const std::function<void(ShardedModel&)>& load)
    : own_(std::in_place, plan, config, mesh, context), asked_{own_->engine, own_->model, own_->decoder} {
  load(own_->model);
}

TokenLogs ReferenceModel::token_logs(const MakeBatches& batches, std::span<const int64_t> lengths, double temperature) {
  std::optional<WithoutAdapter> without;
  if (leaves_out_) without.emplace(asked_.decoder);
  TokenLogs logs = nought::token_logs(asked_.engine, asked_.model, asked_.decoder, batches, lengths, temperature);
  asked_.model.settle();
  return logs;
}

}  // namespace nought
