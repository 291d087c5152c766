// The keys of RUN.json and ds_config.json that say what ranks send each other quantized.
#pragma once

#include <cstdint>

#include "nought/base/visit.h"

namespace nought {

/// LoCo, the error feedback of zero_quantized_gradients.
struct DsLoco {
  Setting<double> err_beta{0.8};
  Setting<int64_t> reset_T{int64_t{1024}};  // NOLINT(readability-identifier-naming): the key's name

  template <class V>
  void visit(V& v) {
    v("err_beta", err_beta,
      "error feedback (LoCo): what codes of gradients lose is added to the next gradients; this share of the error "
      "before stays in the new one");
    v("reset_T", reset_T, "reductions after which errors start from 0");
  }
};

/// Keys of the training section, among its others.
struct QuantizedArgs {
  Setting<bool> moe_quantized_dispatch{false};
  Setting<int64_t> quantized_gradient_bits{int64_t{4}};

  template <class V>
  void visit(V& v) {
    v("moe_quantized_dispatch", moe_quantized_dispatch,
      "with ep_size: rows that go to the ranks of experts, tokens forward and gradients backward, travel as 8-bit "
      "codes "
      "with scales; what experts return travels as it is");
    v("quantized_gradient_bits", quantized_gradient_bits,
      "with zero_optimization.zero_quantized_gradients: 4 or 8, codes with a scale for each 512 of them; 16 or 32, "
      "values in bf16 or fp32");
  }
};

}  // namespace nought
