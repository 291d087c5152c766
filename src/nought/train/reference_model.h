// ReferenceModel: the model that a run which writes its own answers compares itself with: a frozen copy of the weights
// that it begins with, or of alignment.ref_model.
//
// Design goals: answers are new in each step, so what the reference says of them can not be computed before; its
// weights lie beside those that are trained, over the same ranks and at the same stage, and are never updated.
// Non-goals: a reference that follows the model; what never changes (train/pair_run.h keeps numbers in place of
// weights).
#pragma once

#include <functional>

#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/models/decoder.h"

namespace nought {

/// What a model beside the one of `layout` takes that is only asked: its parameters alone.
ShardingOptions reference_sharding(const Layout& layout);

class ReferenceModel {
 public:
  /// config: of the model that is trained. Its weights are those that `load` loads. Collective.
  ReferenceModel(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context,
                 const std::function<void(ShardedModel&)>& load);

  ShardedModel& model() { return model_; }
  Decoder& decoder() { return decoder_; }
  Engine& engine() { return engine_; }

 private:
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
};

}  // namespace nought
