// ReferenceModel: the model that a run which writes its own answers compares itself with: the one that it begins with,
// or alignment.ref_model.
//
// Design goals: answers are new in each step, so what the reference says of them can not be computed before. Where a
// new adapter is trained, it is the model without what the adapter adds, and takes no memory; else its weights lie
// beside those that are trained, over the same ranks and at the same stage, and are never updated. Non-goals: a
// reference that follows the model; what never changes (train/pair_run.h keeps numbers in place of weights).
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/engine/sequence_pass.h"
#include "nought/models/decoder.h"

namespace nought {

/// What a model beside the one of `layout` takes that is only asked: its parameters alone.
ShardingOptions reference_sharding(const Layout& layout);

/// A model and what runs its passes.
struct AskedModel {
  Engine& engine;
  ShardedModel& model;
  Decoder& decoder;
};

/// Leaves out what an adapter adds, for as long as this lives.
class WithoutAdapter {
 public:
  explicit WithoutAdapter(Decoder& decoder) : decoder_(decoder) { decoder_.leave_out_adapter(true); }
  ~WithoutAdapter() { decoder_.leave_out_adapter(false); }
  WithoutAdapter(const WithoutAdapter&) = delete;
  WithoutAdapter& operator=(const WithoutAdapter&) = delete;

 private:
  Decoder& decoder_;
};

class ReferenceModel {
 public:
  /// A model of its own. config: of the model that is trained. Its weights are those that `load` loads. Collective.
  ReferenceModel(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context,
                 const std::function<void(ShardedModel&)>& load);
  /// The model that is trained, where it begins_without_adapter(). It outlives this object.
  explicit ReferenceModel(const AskedModel& trained) : asked_(trained), leaves_out_(true) {}

  /// What it says of the tokens of sequences: see token_logs(). The objective of the model that is trained may be lost.
  /// Collective.
  TokenLogs token_logs(const MakeBatches& batches, std::span<const int64_t> lengths, double temperature);

 private:
  struct Own {
    Own(const RunPlan& plan, const ModelConfig& config, const Mesh& mesh, const Context& context);
    Decoder decoder;
    ShardedModel model;
    Engine engine;
  };
  std::optional<Own> own_;
  AskedModel asked_;
  bool leaves_out_ = false;
};

}  // namespace nought
