// RehearsedRank: one rank of a run that is laid out somehow, on kernels that compute nothing and without the other
// ranks.
#pragma once

#include <memory>

#include "nought/models/decoder.h"
#include "nought/plan/predict.h"
#include "nought/plan/rehearsal.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Of the ranks of the pipeline stage with this place, it is the first with as many tokens as any.
struct RehearsedRank {
  RehearsedRank(const ModelConfig& config, const Layout& layout, int place);
  RehearsedRank(const RehearsedRank&) = delete;
  RehearsedRank& operator=(const RehearsedRank&) = delete;

  CountedWork work = {};  // what the kernels were asked for so far
  Context context;
  std::unique_ptr<Communicator> ranks;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

}  // namespace nought
