// The numbers of ranks with which a run makes the same global batch, and what else it is then told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/config/run_config.h"

namespace nought {

struct ElasticRanks {
  /// A number of ranks of the run, and the values of --set with which they make the batch.
  struct Choice {
    int ranks = 0;
    std::vector<std::string> settings;
  };
  int64_t train_batch = 0;           // sequences per update, over all ranks
  int sharing = 1;                   // ranks that share a model; they divide every number
  bool by_section = false;           // DeepSpeed's section "elasticity" says it
  std::vector<Choice> choices = {};  // in ascending order

  /// The largest number up to `most`; nullptr if all are larger.
  const Choice* largest(int most) const;
};

/// By the section "elasticity" of the run; without it every number of data-parallel ranks that divides the batch which
/// `ranks` make. `ranks`: the run's usual number; 0: not said, which is 1 without the section. ConfigError.
ElasticRanks elastic_ranks(const RunConfig& config, int ranks);

}  // namespace nought
