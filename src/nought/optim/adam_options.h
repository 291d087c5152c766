// AdamOptions: the hyper-parameters of Adam and AdamW that stay constant during a run.
#pragma once

namespace nought {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = true;  // AdamW (arXiv 1711.05101); false adds the decay to the gradient
  bool decay_all = false;       // also norms and biases, which are left out by default
};

}  // namespace nought
