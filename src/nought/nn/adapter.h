// ModelAdapter: what an adapter adds to a model whose own weights stay frozen (LoRA, arXiv 2106.09685): for some of its
// linear layers a product of low rank, and whole copies of some weights that are trained as they are.
//
// Design goals: plain numbers by the names of layers, whoever chose them (models/adapter_modules.h). An adapter's
// parameters are parameters of the Unit of their layer, like any others, so that whatever gathers, reduces, updates or
// saves parameters does it with them. Non-goals: peft's keys (models/adapter_config.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// How the factors A and B of a layer begin, by peft's init_lora_weights. Those of an embedding begin with A zero and B
/// normal, or both normal.
enum class AdapterStart : uint8_t {
  uniform,     // true: A uniform as torch's Linear begins, B zero
  gaussian,    // "gaussian": A normal with standard deviation 1 / rank, B zero
  random,      // false: both as torch's Linear begins
  orthogonal,  // "orthogonal": both random and B A zero
  pissa,       // "pissa": B A is the part of W with the largest singular values, and W begins without it
  olora        // "olora": the same with the first columns of Q and rows of R of W = Q R
};
/// Whether the model's own weight begins without scale * B A.
constexpr bool takes_of_the_base(AdapterStart start) {
  return start == AdapterStart::pissa || start == AdapterStart::olora;
}

/// y = W x + scale * B A x, with A [rank, in] and B [out, rank]. Decomposed (DoRA, arXiv 2402.09353), output o of it is
/// multiplied by m_o / |row o of W + scale * B A|, where magnitudes m are trained and norms are constants.
struct LowRank {
  int64_t rank = 0;
  double scale = 1;
  AdapterStart start = AdapterStart::uniform;
  /// pissa takes so many steps to approximate them (pissa_niter_N); 0: until they are exact.
  int64_t start_iterations = 0;
  bool decomposed = false;
  bool bias = false;  // B has one: y gets scale * it too
  /// It is one for each expert: A [experts, rank, in] and B [experts, out, rank].
  bool of_experts = false;

  bool operator==(const LowRank&) const = default;
};

struct ModelAdapter {
  std::map<std::string, LowRank, std::less<>> layers = {};  // by their names, "model.layers.0.self_attn.q_proj"; and
                                                            // "model.embed_tokens", y = W[id] + scale * B A[id]
  double dropout = 0;  // the share of what A reads that a step of training drops, of all but embeddings
  std::vector<std::string> saved = {};  // parameters that are trained whole, "lm_head.weight"
  std::string tied_head = {};           // of a tied model: the head that stays the table, which is trained whole
  /// Tokens whose rows of the table, or of a head of its own, are replaced by trained ones, in the order of these: by
  /// the names of their layers, "model.embed_tokens".
  std::map<std::string, std::vector<int32_t>, std::less<>> tokens = {};
  /// Adapters of which each row of a batch has one or none, where nothing is trained. Their products have names.
  std::vector<ModelAdapter> choices = {};
  std::string name = {};  // of one of several choices; the names of its parameters have it: "lora_A.NAME.weight"

  bool empty() const { return layers.empty() && saved.empty() && tokens.empty(); }
  /// Whether it, or one of the choices, adds to layers.
  bool adds_to_layers() const { return !layers.empty() || !choices.empty(); }
  /// Null for a layer that has no product of low rank.
  const LowRank* find(std::string_view layer) const {
    const auto found = layers.find(layer);
    return found == layers.end() ? nullptr : &found->second;
  }
  /// Whether it has no magnitudes, no biases of B, no rows of tokens, and adds to no experts.
  bool has_products_alone() const {
    return tokens.empty() && std::none_of(layers.begin(), layers.end(), [](const auto& each) {
             return each.second.decomposed || each.second.bias || each.second.of_experts;
           });
  }
  bool saves(std::string_view parameter) const {
    return std::find(saved.begin(), saved.end(), parameter) != saved.end();
  }
  bool operator==(const ModelAdapter&) const = default;
};

inline constexpr std::string_view kWeightOfLayer = ".weight", kBiasOfLayer = ".bias";
/// The layer that a parameter belongs to whose name ends in `kind`, one of these; "" for other names.
inline std::string_view layer_of(std::string_view parameter, std::string_view kind) {
  return parameter.ends_with(kind) ? parameter.substr(0, parameter.size() - kind.size()) : std::string_view();
}

/// The names of parameters of an adapter begin so, in peft's files too.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

/// ".NAME" for one of several choices, as peft names the modules of its adapters; "" for an adapter without a name.
inline std::string part_of_choice(std::string_view choice) {
  return choice.empty() ? std::string() : "." + std::string(choice);
}

/// Names of an embedding's factors; A is [vocabulary, rank] here, and the transpose in files.
inline std::string embedding_factor_name(std::string_view layer, char factor, std::string_view choice = {}) {
  return std::string(kAdapterPrefix).append(layer).append(".lora_embedding_").append(1, factor) +
         part_of_choice(choice);
}

/// Ends the name of the bias of a layer's B.
inline constexpr std::string_view kBiasOfB = ".lora_B.bias";
inline std::string low_rank_bias_name(std::string_view layer, std::string_view choice = {}) {
  return std::string(kAdapterPrefix).append(layer).append(".lora_B") + part_of_choice(choice) + ".bias";
}

inline constexpr std::string_view kMagnitudeOfLayer = ".lora_magnitude_vector";
/// The name of a layer's magnitudes.
inline std::string magnitude_name(std::string_view layer) {
  return std::string(kAdapterPrefix).append(layer).append(kMagnitudeOfLayer);
}

inline constexpr std::string_view kTokenRowsOfLayer = ".token_adapter.trainable_tokens_delta";
/// The name of the rows that replace those of some tokens.
inline std::string token_rows_name(std::string_view layer) {
  return std::string(kAdapterPrefix).append(layer).append(kTokenRowsOfLayer);
}

/// Names of a layer's factors: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
inline std::string low_rank_name(std::string_view layer, char factor, std::string_view choice = {}) {
  return std::string(kAdapterPrefix).append(layer).append(".lora_").append(1, factor) + part_of_choice(choice) +
         ".weight";
}

}  // namespace nought
