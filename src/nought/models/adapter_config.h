// AdapterConfig: peft's LoraConfig, as RUN.json and adapter_config.json have it, and written back as peft writes it.
//
// Design goals: peft's names, defaults and meanings. Every key of peft is known: one that is not supported is refused
// by its name, unless it has the value that turns it off. Non-goals: which layers of a model it chooses
// (adapter_modules.h), tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/nn/adapter.h"

namespace nought {

class Origins;

/// A choice of layers by names, each of which ends a layer's name, or by a regular expression of whole names.
struct LayerChoice {
  std::vector<std::string> names = {};
  std::optional<std::string> pattern = {};

  bool given() const { return !names.empty() || pattern; }
};

/// Which biases of the model are trained with its adapter.
enum class AdapterBias : uint8_t { none, all, lora_only /* those of layers that it adds to */ };

/// A number for the layers whose names a regular expression ends; the first that does counts.
template <class T>
using LayerPatterns = std::vector<std::pair<std::string, T>>;

struct AdapterConfig {
  std::string base = {};       // base_model_name_or_path
  std::string task_type = {};  // "" if it is null
  int64_t r = 8;
  double alpha = 8;  // lora_alpha
  bool rslora = false;
  double dropout = 0;        // lora_dropout
  bool dora = false;         // use_dora
  bool bias_of_b = false;    // lora_bias
  LayerChoice targets = {};  // not given: those of the family; the pattern "all-linear": all
  LayerChoice excluded = {};
  std::vector<std::string> parameters = {};  // target_parameters
  std::vector<int64_t> layers = {};          // layers_to_transform; none: all
  std::vector<std::string> layers_pattern = {};
  LayerPatterns<int64_t> rank_pattern = {};
  LayerPatterns<double> alpha_pattern = {};
  AdapterStart start = AdapterStart::uniform;  // init_lora_weights
  int64_t start_iterations = 0;                // N of pissa_niter_N
  std::vector<std::string> modules_to_save = {};
  /// trainable_token_indices: tokens by the names of layers; "" for those of a list, which means the embedding.
  std::vector<std::pair<std::string, std::vector<int32_t>>> tokens = {};
  bool ties = false;  // ensure_weight_tying
  AdapterBias bias = AdapterBias::none;
  bool fan_in_fan_out = false;

  /// All of `target_modules`: "all-linear", in any case.
  bool targets_all() const;
  /// Whether the model without what a new adapter adds is the one that it began with: no weight of the model itself is
  /// trained, and none begins without a part that the adapter has.
  bool can_be_left_out() const {
    return modules_to_save.empty() && bias == AdapterBias::none && !takes_of_the_base(start);
  }
  /// The factor on the product of a layer with this rank and alpha.
  double scale_of(int64_t rank, double layer_alpha) const;

  /// Reads an object of peft's keys, at `path` of what `origins` knows. RUN.json's `type` is another name of peft_type.
  /// ConfigError.
  static AdapterConfig from_json(const OrderedJson& json, const Origins& origins, const std::string& path = "");
  /// Every key that peft writes, sorted.
  OrderedJson to_json() const;
};

}  // namespace nought
