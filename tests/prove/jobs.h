// Jobs of four ranks that dry runs are made of.
#pragma once

#include "nought/config/layout.h"

namespace nought::test {

/// 4 micro-batches of one row in a step.
inline Layout job_of_four(int stage, int tensor, int context, int pipeline) {
  Layout layout{.ranks = 4,
                .zero_stage = stage,
                .tensor_ranks = tensor,
                .context_ranks = context,
                .micro_batch = 1,
                .seq_length = 64,
                .accumulation = 4};
  layout.pipeline.ranks = pipeline;
  return layout;
}

}  // namespace nought::test
