// The sections of ds_config.json that say how ranks share a model: tensor_parallel, pipeline, expert_parallel.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/visit.h"

namespace nought {

struct DsTensorParallel {
  Setting<int64_t> autotp_size{int64_t{0}};

  template <class V>
  void visit(V& v) {
    v("autotp_size", autotp_size, "as training.parallelism_config.tp_size; 0 = 1");
  }
};

struct DsPipeline {
  Auto<int64_t> stages;
  Setting<std::string> partition{"best"};
  Setting<int64_t> activation_checkpoint_interval{int64_t{0}};

  template <class V>
  void visit(V& v) {
    v("stages", stages, "as training.parallelism_config.pp_size; auto <- it");
    v("partition", partition, "as training.parallelism_config.pipeline_parallel_partition");
    v("activation_checkpoint_interval", activation_checkpoint_interval,
      "full recompute, in which so many neighbouring blocks of a stage run again from one kept input; 0 = as "
      "training.recompute says");
  }
};

struct DsExpertParallel {
  Setting<bool> enabled{false};
  Setting<int64_t> autoep_size{int64_t{1}};
  Setting<int64_t> expert_tensor_parallel_size;

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "whether autoep_size counts");
    v("autoep_size", autoep_size, "as training.parallelism_config.ep_size");
    v("expert_tensor_parallel_size", expert_tensor_parallel_size,
      "ranks that share the matrices of an expert: tp_size, which is the default (DeepSpeed: 1)");
  }
};

}  // namespace nought
