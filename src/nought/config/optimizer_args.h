// OptimizerArgs: the keys of RUN.json and ds_config.json that only some optimizers have.
#pragma once

#include <cstdint>

#include "nought/base/visit.h"

namespace nought {

/// They stand in training.optim_args and in DeepSpeed's optimizer.params.
struct OptimizerArgs {
  Setting<double> momentum;
  Setting<double> dampening{0.0};
  Setting<bool> nesterov{false};
  Setting<double> max_coeff{10.0};
  Setting<double> min_coeff{0.01};
  Setting<bool> bias_correction{true};
  Setting<double> muon_lr;
  Setting<double> adam_lr;
  Setting<int64_t> block_size{256};

  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "SGD, Muon: decay of the momentum; default: 0 for SGD, 0.95 for Muon");
    v("dampening", dampening, "SGD: the momentum takes 1 - dampening of the gradient");
    v("nesterov", nesterov, "SGD: look ahead along the momentum");
    v("max_coeff", max_coeff, "Lamb: largest trust ratio");
    v("min_coeff", min_coeff, "Lamb: smallest trust ratio");
    v("bias_correction", bias_correction, "Lamb: correct the moments of the first updates; Adam always does");
    v("muon_lr", muon_lr, "Muon: learning rate of the blocks' matrices; default: lr");
    v("adam_lr", adam_lr, "Muon: learning rate of all other parameters, which AdamW updates; default: lr");
    v("block_size", block_size, "8-bit optimizers: how many elements share a scale");
  }
};

}  // namespace nought
