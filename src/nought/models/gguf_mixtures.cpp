#include "nought/models/gguf_mixtures.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "nought/base/error.h"

namespace nought {

namespace {

using enum GgufExtra;

constexpr GgufMixture kMixtures[] = {{"f32", GgufType::f32, 0},
                                     {"f16", GgufType::f16, 1},
                                     {"bf16", GgufType::bf16, 32},
                                     {"q8_0", GgufType::q8_0, 7},
                                     {"q6_k", GgufType::q6_k, 18, head},
                                     {"q5_k_m", GgufType::q5_k, 17, medium},
                                     {"q5_k_s", GgufType::q5_k, 16, head},
                                     {"q5_1", GgufType::q5_1, 9, head},
                                     {"q5_0", GgufType::q5_0, 8, head},
                                     {"q4_k_m", GgufType::q4_k, 15, medium},
                                     {"q4_k_s", GgufType::q4_k, 14, small},
                                     {"q4_1", GgufType::q4_1, 3, head},
                                     {"q4_0", GgufType::q4_0, 2, head},
                                     {"iq4_nl", GgufType::iq4_nl, 25, head},
                                     {"iq4_xs", GgufType::iq4_xs, 30, head},
                                     {"mxfp4", GgufType::mxfp4, 38, experts},
                                     {"q3_k_m", GgufType::q3_k, 12, medium},
                                     {"q2_k", GgufType::q2_k, 10, medium}};

constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"q5_k", "q5_k_m"}, {"q4_k", "q4_k_m"}, {"q3_k", "q3_k_m"}, {"mxfp4_moe", "mxfp4"}};

/// The layer of "blk.N...."; -1 for what is in none.
int64_t layer_of(std::string_view tensor) {
  int64_t layer = -1;
  if (tensor.starts_with("blk.")) std::from_chars(tensor.data() + 4, tensor.data() + tensor.size(), layer);
  return layer;
}

/// The first and the last eighth of the layers, and every third between them.
bool takes_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// A matrix and the model that it is of.
struct Matrix {
  std::string_view tensor;
  int64_t layer, layers;
  bool eight_experts;

  bool is(std::string_view part) const { return tensor.find(part) != tensor.npos; }
  bool more() const { return takes_more_bits(layer, layers); }
};

std::optional<GgufType> medium_of_values(GgufType type, const Matrix& matrix) {
  if (type == GgufType::q2_k) return matrix.eight_experts ? GgufType::q8_0 : GgufType::q3_k;
  if (matrix.eight_experts) return GgufType::q8_0;
  if (type == GgufType::q3_k) return matrix.layer < 2 ? GgufType::q5_k : GgufType::q4_k;
  return matrix.more() ? std::optional(GgufType::q6_k) : std::nullopt;
}

std::optional<GgufType> medium_of_down(GgufType type, const Matrix& matrix) {
  if (type == GgufType::q2_k) return GgufType::q3_k;
  if (type != GgufType::q3_k) return matrix.more() ? std::optional(GgufType::q6_k) : std::nullopt;
  if (matrix.layer < matrix.layers / 16) return GgufType::q5_k;
  return matrix.more() ? GgufType::q4_k : GgufType::q3_k;
}

std::optional<GgufType> medium_of_output(GgufType type, const Matrix& matrix) {
  if (matrix.eight_experts && type != GgufType::q5_k) return GgufType::q5_k;
  if (type == GgufType::q2_k) return GgufType::q3_k;
  return type == GgufType::q3_k ? std::optional(GgufType::q4_k) : std::nullopt;
}

std::optional<GgufType> medium_of_all_three(GgufType type) {
  switch (type) {
    case GgufType::q2_k:
    case GgufType::q3_k:
      return GgufType::q4_k;
    case GgufType::q4_k:
      return GgufType::q5_k;
    default:
      return GgufType::q6_k;
  }
}

/// What a mixture of medium size takes for a matrix of a layer; nothing: its own type.
std::optional<GgufType> medium_type(GgufType type, const Matrix& matrix) {
  if (matrix.is(".attn_v.")) return medium_of_values(type, matrix);
  if (matrix.is(".attn_k.") && matrix.eight_experts) return GgufType::q8_0;
  if (matrix.is(".ffn_down")) return medium_of_down(type, matrix);
  if (matrix.is(".attn_output.")) return medium_of_output(type, matrix);
  if (matrix.is(".attn_qkv.")) return medium_of_all_three(type);
  return std::nullopt;
}

/// The type itself, or what takes its place for rows that are no whole blocks of it.
GgufType fitting(GgufType type, int64_t columns) {
  if (columns % weight_format(type).block == 0) return type;
  switch (type) {
    case GgufType::q2_k:
    case GgufType::q3_k:
    case GgufType::iq4_xs:
      return fitting(GgufType::iq4_nl, columns);
    case GgufType::q4_k:
      return fitting(GgufType::q5_0, columns);
    case GgufType::q5_k:
      return fitting(GgufType::q5_1, columns);
    case GgufType::q6_k:
      return fitting(GgufType::q8_0, columns);
    default:
      return GgufType::f16;
  }
}

}  // namespace

GgufType GgufMixture::type_of(std::string_view tensor, const Shape& shape, const ModelConfig& config) const {
  const Matrix matrix{tensor, layer_of(tensor), config.num_layers, config.experts && config.experts->num_experts == 8};
  const bool is_head = tensor == "output.weight" || (config.tie_word_embeddings && tensor == "token_embd.weight");
  GgufType chosen = type;
  if (extra == experts) {
    const bool takes = config.experts ? matrix.is("_exps.") : matrix.layer >= 0;
    chosen = takes ? type : GgufType::q8_0;
  } else if (is_head && extra != none) {
    chosen = GgufType::q6_k;
  } else if (extra == small && matrix.is(".ffn_down") && matrix.layer < matrix.layers / 8) {
    chosen = GgufType::q5_k;
  } else if (extra == medium && matrix.layer >= 0) {
    chosen = medium_type(type, matrix).value_or(type);
  }
  return fitting(chosen, shape[-1]);
}

std::span<const GgufMixture> gguf_mixtures() { return kMixtures; }

const GgufMixture* find_gguf_mixture(std::string_view name) {
  for (const auto& [other, own] : kOtherNames)
    if (name == other) name = own;
  const auto* found = std::find_if(std::begin(kMixtures), std::end(kMixtures),
                                   [&](const GgufMixture& each) { return each.name == name; });
  return found == std::end(kMixtures) ? nullptr : found;
}

const GgufMixture& gguf_mixture(GgufType type) {
  const auto* found = std::find_if(std::begin(kMixtures), std::end(kMixtures),
                                   [&](const GgufMixture& each) { return each.type == type; });
  require<ConfigError>(found != std::end(kMixtures), "no GGUF file is mostly of {}", name_of(type));
  return *found;
}

}  // namespace nought
