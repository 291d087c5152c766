// DeepSpeed's section "elasticity": a global batch that many numbers of ranks can make.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

struct DsElasticity {
  Setting<bool> enabled{false};
  Setting<int64_t> max_train_batch_size;
  Setting<std::vector<int64_t>> micro_batch_sizes;
  Setting<int64_t> min_gpus{int64_t{1}};
  Setting<int64_t> max_gpus{int64_t{10000}};
  Setting<double> min_time{0.0};
  Setting<double> version{0.2};
  Setting<bool> prefer_larger_batch{true};
  Setting<bool> ignore_non_elastic_batch_info{false};
  Setting<int64_t> num_gpus_per_node{int64_t{1}};
  Setting<int64_t> model_parallel_size{int64_t{1}};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled,
      "choose the global batch that the most numbers of ranks can make, and the micro-batch and accumulation of this "
      "run's number; see docs/cluster.md");
    v("max_train_batch_size", max_train_batch_size, "the most sequences per update, over all ranks; required");
    v("micro_batch_sizes", micro_batch_sizes, "the micro-batches to choose from; required");
    v("min_gpus", min_gpus, "the fewest ranks; with version 0.2 rounded down to whole nodes");
    v("max_gpus", max_gpus, "the most ranks; with version 0.2 rounded down to whole nodes");
    v("min_time", min_time, "minutes between two changes of the number of ranks; nothing reads it, as in DeepSpeed");
    v("version", version,
      "0.1: any number of data-parallel ranks; 0.2: whole nodes of num_gpus_per_node ranks, of which "
      "model_parallel_size share a model");
    v("prefer_larger_batch", prefer_larger_batch,
      "of two batches that equally many numbers of ranks can make, take the larger");
    v("ignore_non_elastic_batch_info", ignore_non_elastic_batch_info,
      "whether train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps may be given beside "
      "this section, and have no effect");
    v("num_gpus_per_node", num_gpus_per_node, "version 0.2: ranks of a node");
    v("model_parallel_size", model_parallel_size,
      "version 0.2: ranks that share a model, tp_size x pp_size x cp_size; they divide num_gpus_per_node");
  }
};

}  // namespace nought
