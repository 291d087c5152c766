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
  Setting<double> alpha{0.99};
  Setting<double> max_coeff{10.0};
  Setting<double> min_coeff{0.01};
  Setting<bool> bias_correction{true};
  Setting<double> muon_lr;
  Setting<double> adam_lr;
  Setting<int64_t> block_size{256};
  Setting<int64_t> freeze_step{int64_t{100000}};
  Setting<double> coeff_beta{0.9};
  Setting<double> factor_max{4.0};
  Setting<double> factor_min{0.5};
  Setting<double> factor_threshold{0.1};
  Setting<int64_t> var_freeze_step{int64_t{100000}};
  Setting<int64_t> var_update_scaler{int64_t{16}};
  Setting<int64_t> local_step_scaler{int64_t{32678}};
  Setting<int64_t> local_step_clipper{int64_t{16}};

  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "SGD, Muon: decay of the momentum; default: 0 for SGD, 0.95 for Muon");
    v("dampening", dampening, "SGD: the momentum takes 1 - dampening of the gradient");
    v("nesterov", nesterov, "SGD: look ahead along the momentum");
    v("alpha", alpha, "rmsprop: decay of the mean of squares");
    v("max_coeff", max_coeff, "Lamb: largest trust ratio");
    v("min_coeff", min_coeff, "Lamb: smallest trust ratio");
    v("bias_correction", bias_correction, "Lamb: correct the moments of the first updates; Adam always does");
    v("muon_lr", muon_lr, "Muon: learning rate of the blocks' matrices; default: lr");
    v("adam_lr", adam_lr, "Muon: learning rate of all other parameters, which AdamW updates; default: lr");
    v("block_size", block_size, "8-bit optimizers: how many elements share a scale");
    v("freeze_step", freeze_step,
      "OneBitAdam, OneBitLamb: after so many updates the second moments stay, and momenta travel in one bit");
    v("coeff_beta", coeff_beta, "OneBitLamb: decay of the mean of trust ratios in the first updates");
    v("factor_max", factor_max, "OneBitLamb: the most by which that mean is multiplied later");
    v("factor_min", factor_min, "OneBitLamb: the least");
    v("factor_threshold", factor_threshold, "OneBitLamb: the part by which that factor may change in an update");
    v("var_freeze_step", var_freeze_step,
      "ZeroOneAdam: after so many updates the second moments stay, and ranks update by themselves between "
      "synchronizations");
    v("var_update_scaler", var_update_scaler,
      "ZeroOneAdam: after so many updates of the second moments twice as many updates lie between two of them");
    v("local_step_scaler", local_step_scaler,
      "ZeroOneAdam: after so many updates by themselves twice as many lie between two synchronizations");
    v("local_step_clipper", local_step_clipper, "ZeroOneAdam: the most updates between two synchronizations");
  }
};

}  // namespace nought
