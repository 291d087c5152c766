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

struct DsActivationQuantizationShared {
  Setting<bool> enabled{false};
  Setting<std::string> quantization_type{std::string("symmetric")};
  Setting<std::string> range_calibration{std::string("dynamic")};
  Setting<int64_t> schedule_offset{int64_t{1000}};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "compute with inputs that are rounded to few bits, each token's by itself");
    v("quantization_type", quantization_type, "symmetric or asymmetric");
    v("range_calibration", range_calibration, "dynamic, a range for each token; static is not available");
    v("schedule_offset", schedule_offset, "updates before the first step that rounds");
  }
};

struct DsActivationQuantization {
  DsActivationQuantizationShared shared_parameters;
  Setting<Json> different_groups;

  template <class V>
  void visit(V& v) {
    v("shared_parameters", shared_parameters, "");
    v("different_groups", different_groups,
      "by name: {\"params\": {\"bits\": 4 or 8}, \"modules\": [patterns that are searched for in the names of linear "
      "layers]}");
  }
};

struct DsSparsePruningShared {
  Setting<bool> enabled{false};
  Setting<std::string> method{std::string("l1")};
  Setting<int64_t> schedule_offset{int64_t{1000}};
  Setting<int64_t> schedule_offset_end, schedule_offset_stride;
  Setting<std::string> block_pattern;
  Setting<double> dense_ratio;
  Setting<std::vector<std::string>> excluded_modules;

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "compute without the smallest weights of a matrix, which have no gradient either");
    v("method", method, "l1: by their magnitude when the run begins; topk and snip_momentum are not available");
    v("schedule_offset", schedule_offset, "updates before the first step without them");
    v("schedule_offset_end", schedule_offset_end, "of snip_momentum, which is not available");
    v("schedule_offset_stride", schedule_offset_stride, "of snip_momentum, which is not available");
    v("block_pattern", block_pattern, "of snip_momentum, which is not available");
    v("dense_ratio", dense_ratio, "of snip_momentum, which is not available; a group has its own");
    v("excluded_modules", excluded_modules, "of snip_momentum, which is not available");
  }
};

struct DsSparsePruning {
  DsSparsePruningShared shared_parameters;
  Setting<Json> different_groups;

  template <class V>
  void visit(V& v) {
    v("shared_parameters", shared_parameters, "");
    v("different_groups", different_groups,
      "by name: {\"params\": {\"dense_ratio\": the part of the weights that stays}, \"modules\": [patterns that are "
      "searched for in the names of layers]}");
  }
};

struct DsCompressionTraining {
  DsWeightQuantization weight_quantization;
  DsActivationQuantization activation_quantization;
  DsSparsePruning sparse_pruning;

  template <class V>
  void visit(V& v) {
    v("weight_quantization", weight_quantization, "");
    v("activation_quantization", activation_quantization, "");
    v("sparse_pruning", sparse_pruning, "");
  }
};

/// One of different_groups.
template <class Params>
struct DsLayerGroup {
  Params params;
  Setting<std::vector<std::string>> modules;
  Setting<Json> related_modules;

  template <class V>
  void visit(V& v) {
    v("params", params, "");
    v("modules", modules, "patterns that are searched for in the names of layers");
    v("related_modules", related_modules, "pruning of rows and heads alone has them");
  }
};
struct DsInputGroupParams {
  Setting<int64_t> bits;

  template <class V>
  void visit(V& v) {
    v("bits", bits, "4 or 8");
  }
};
struct DsPrunedGroupParams {
  Setting<double> dense_ratio;

  template <class V>
  void visit(V& v) {
    v("dense_ratio", dense_ratio, "the part of the weights that stays");
  }
};
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
using DsWeightGroup = DsLayerGroup<DsWeightGroupParams>;

}  // namespace nought
