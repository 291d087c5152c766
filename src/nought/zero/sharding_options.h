// ShardingOptions: what a ShardedModel takes. A run's plan holds them as they are.
#pragma once

#include <cstdint>
#include <optional>

#include "nought/compress/qat.h"
#include "nought/compress/sparse_pruning.h"
#include "nought/compress/weight_quantization.h"
#include "nought/optim/options.h"
#include "nought/tensor/dtype.h"
#include "nought/zero/live_parameters.h"
#include "nought/zero/offload_options.h"
#include "nought/zero/policy.h"
#include "nought/zero/power_sgd_options.h"
#include "nought/zero/wire_options.h"

namespace nought {

struct ShardingOptions {
  Policy policy = {};
  DType dtype = DType::f32;           // parameters and activations have it
  DType gradient_dtype = DType::f32;  // gradients accumulate in it: f32, or the parameters' dtype
  bool overlap = true;                // communication runs overlapped with computation: changes time, never bits
  bool training = true;               // false: parameters only; what needs gradients is an Error
  OptimizerOptions optimizer = {};
  std::optional<DType> wire_dtype = {};  // gradients travel between ranks in it; not given: gradient_dtype
  // How many elements one collective takes at most, padding included; 0: every segment travels alone.
  int64_t reduce_bucket = 0;  // for gradients
  int64_t gather_bucket = 0;  // for updated parameters, at stages 1 and 2
  OffloadOptions offload_optimizer = {};
  std::optional<PowerSgdOptions> power_sgd = {};  // how gradients are summed, at stage 0
  ParameterOffload offload_param = {};            // offloading takes a policy that shards parameters
  WireOptions codes = {};                         // other than plain ones take a policy that shards parameters
  LiveParameters live = {};                       // what stays gathered between passes
  // What passes of a training compute with in place of the stored weights (zero/working_weights.h).
  std::optional<WeightQuantization> weight_quantization = {};
  std::optional<Qat> qat = {};
  std::optional<SparsePruning> sparse_pruning = {};
  /// A step has the bits that it has on so many ranks with one micro-batch each: gradients are added in a binary tree,
  /// and what a rank owns is cut as theirs is. A power of two that the ranks divide; 0: as the ranks are.
  int virtual_ranks = 0;
  /// How many neighbours of so many shards read neighbouring parts of a step at once (BatchLayout::together): those
  /// that add up each micro-batch, and not the whole step, are neighbours in the tree of virtual ranks.
  int read_together(int shard_ranks) const { return virtual_ranks == 0 ? 0 : policy.shard_gradients ? shard_ranks : 1; }
  /// No rank adds others' gradients to its own: somebody else does (zero/rotating_servers.h).
  bool local_gradients = false;

  bool changes_weights() const { return weight_quantization || qat || sparse_pruning; }
  DType wire() const { return wire_dtype.value_or(gradient_dtype); }
};

}  // namespace nought
