// The section compression_training of ds_config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/base/visit.h"

namespace nought {

struct DsMixedQuantize {
  Setting<bool> enabled{false};
  Setting<double> quantize_change_ratio{0.001};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "compute with a mixture of the rounded and the unrounded weight");
    v("quantize_change_ratio", quantize_change_ratio,
      "what the unrounded weight's share of 1 loses with each step; it is 1 again where a bit goes");
  }
};

struct DsWeightQuantizationShared {
  Setting<bool> enabled{false};
  Setting<bool> quantizer_kernel{false};
  Setting<int64_t> schedule_offset{int64_t{0}};
  Setting<int64_t> quantize_groups{int64_t{1}};
  Setting<bool> quantize_verbose{false};
  Setting<std::string> quantization_type{std::string("symmetric")};
  Setting<std::string> rounding{std::string("nearest")};
  Setting<bool> quantize_weight_in_forward{false};
  DsMixedQuantize fp16_mixed_quantize;

  template <class V>
  void visit(V& v) {
    v("enabled", enabled,
      "compute with weights that are rounded to few bits; what is updated and saved is not rounded");
    v("quantizer_kernel", quantizer_kernel, "selects an implementation in DeepSpeed; the values are the same");
    v("schedule_offset", schedule_offset, "updates before the first step that rounds");
    v("quantize_groups", quantize_groups,
      "groups of each matrix that have a scale of their own; a table has one a row");
    v("quantize_verbose", quantize_verbose, "no effect: nought check lists the layers and when their bits fall");
    v("quantization_type", quantization_type, "symmetric or asymmetric; 2 bits are ternary and 1 bit is binary");
    v("rounding", rounding, "nearest or stochastic");
    v("quantize_weight_in_forward", quantize_weight_in_forward,
      "target_bits hold from the first step that rounds; without it bits fall from start_bits");
    v("fp16_mixed_quantize", fp16_mixed_quantize, "");
  }
};

struct DsWeightQuantization {
  DsWeightQuantizationShared shared_parameters;
  Setting<Json> different_groups;

  template <class V>
  void visit(V& v) {
    v("shared_parameters", shared_parameters, "");
    v("different_groups", different_groups,
      "by name: {\"params\": {\"start_bits\", \"target_bits\", \"quantization_period\"}, \"modules\": [patterns that "
      "are "
      "searched for in the names of layers]}; the period until the first bit goes doubles with each");
  }
};

struct DsCompressionTraining {
  DsWeightQuantization weight_quantization;

  template <class V>
  void visit(V& v) {
    v("weight_quantization", weight_quantization, "");
  }
};

/// One of weight_quantization.different_groups.
struct DsWeightGroupParams {
  Setting<int64_t> start_bits, target_bits;
  Setting<int64_t> quantization_period{int64_t{1}};

  template <class V>
  void visit(V& v) {
    v("start_bits", start_bits, "bits of the first step that rounds");
    v("target_bits", target_bits, "bits that are left in the end");
    v("quantization_period", quantization_period, "steps until the first bit goes");
  }
};
struct DsWeightGroup {
  DsWeightGroupParams params;
  Setting<std::vector<std::string>> modules;
  Setting<Json> related_modules;

  template <class V>
  void visit(V& v) {
    v("params", params, "");
    v("modules", modules, "patterns that are searched for in the names of layers");
    v("related_modules", related_modules, "pruning alone has them");
  }
};

}  // namespace nought
