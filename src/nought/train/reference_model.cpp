#include "nought/train/reference_model.h"

#include "nought/engine/pipeline_cut.h"

namespace nought {

ShardingOptions reference_sharding(const Layout& layout) {
  ShardingOptions options = layout.sharding_options();
  options.training = false;
  return options;
}

ReferenceModel::ReferenceModel(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context,
                               const std::function<void(ShardedModel&)>& load)
    : decoder_(
          config, {}, {},
          ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, config), plan.layout.context_method)),
      model_(context, mesh, apply(plan.layout.freezing, decoder_), reference_sharding(plan.layout)),
      engine_(model_) {
  engine_.set_schedule(schedule_at(mesh, plan.layout.pipeline));
  load(model_);
}

}  // namespace nought
