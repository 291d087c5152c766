// Elasticity: the global batch that DeepSpeed's section "elasticity" chooses, and the numbers of ranks that can make
// it.
//
// The answers are DeepSpeed's (deepspeed/elasticity/elasticity.py of 0.19), but for version 0.2 with
// model_parallel_size above 1: DeepSpeed compares all ranks with numbers of data-parallel ranks there, and divides the
// batch by all ranks. Here both are data-parallel ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/config/ds_elasticity.h"

namespace nought {

struct ElasticBatch {
  int64_t train_batch = 0;          // sequences per update, over all ranks
  std::vector<int64_t> data_ranks;  // the numbers of data-parallel ranks that can make it, in ascending order
  std::vector<int64_t> micro_batch_sizes;

  bool allows(int64_t ranks) const;
  /// The largest micro-batch with which so many data-parallel ranks make the batch. `ranks` is one of `data_ranks`.
  int64_t micro_batch(int64_t ranks) const;
  int64_t accumulation(int64_t ranks) const { return train_batch / (micro_batch(ranks) * ranks); }
  /// "4, 6 and 8": those next to a number of ranks that is not one of `data_ranks`.
  std::string nearest(int64_t ranks) const;
};

/// ConfigError, which begins with `place`, for keys that are missing or cannot be, and where no number of ranks can
/// make a batch; the nearest that could is named.
ElasticBatch elastic_batch(const DsElasticity& section, const std::string& place);

/// What a run of so many data-parallel ranks makes: the batch above if they are one of its numbers. Else version 0.2
/// gives them the largest batch that they can make (with prefer_larger_batch = false: the smallest of those of each
/// micro-batch), and version 0.1 is a ConfigError that names the nearest.
ElasticBatch elastic_batch_of(const DsElasticity& section, const std::string& place, int64_t data_ranks);

}  // namespace nought
