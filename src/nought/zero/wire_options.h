// WireOptions: how what ranks share out travels between them, where it is not sent as it is (ZeRO++, arXiv 2306.10209).
#pragma once

#include <cstdint>
#include <optional>

namespace nought {

/// What codes lose is added to the next gradients (LoCo, arXiv 2407.04480).
struct ErrorFeedback {
  double beta = 0.8;     // the share of the error before that stays in the new one
  int64_t reset = 1024;  // reductions after which errors start from 0
};

/// The bits are those of EncodeWire (kernels/ops/wire.h).
struct WireOptions {
  int weight_bits = 0;    // of the gathers of passes; 0: parameters travel as they are
  int gradient_bits = 0;  // of reductions to shards; 0: a reduce-scatter
  std::optional<ErrorFeedback> feedback = {};

  bool plain() const { return weight_bits == 0 && gradient_bits == 0; }
};

}  // namespace nought
