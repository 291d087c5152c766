// QatArgs: the keys of training that train a model for few bits.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/visit.h"

namespace nought {

struct QatArgs {
  Setting<std::string> qat{std::string("none")};
  Setting<int64_t> qat_group_size{int64_t{32}};
  Setting<int64_t> qat_start_step{int64_t{0}};

  template <class V>
  void visit(V& v) {
    v("qat", qat,
      "compute with the values of few bits that `nought quantize` would write of the linear layers, so that rounding "
      "the trained model loses nothing more: int4, int8 (weights), int8-int4, fp8-int4 (inputs by token and weights), "
      "fp8 (both), mxfp4 (weights); none = with the weights as they are");
    v("qat_group_size", qat_group_size, "with 4 bits: weights of a row that share a scale");
    v("qat_start_step", qat_start_step, "with qat: updates before the first step that rounds");
  }
};

}  // namespace nought
