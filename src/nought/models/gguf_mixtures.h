// The file types of GGUF: which type each tensor of a model has.
//
// A type of few bits is seldom that of all tensors: the head, values and the second half of MLPs take more bits, layer
// by layer. The rules are those of llama.cpp's llama_tensor_get_type (src/llama-quant.cpp), so that files have its
// sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nought/io/weight_formats.h"
#include "nought/models/config.h"
#include "nought/tensor/shape.h"

namespace nought {

/// More bits than the mixture's own type, for tensors of which llama.cpp thinks so.
enum class GgufExtra : uint8_t {
  none,    // all matrices have the type
  head,    // the head has q6_k
  small,   // llama.cpp's _S: the head, and the second half of MLPs in the first layers
  medium,  // llama.cpp's _M
  experts  // experts alone have the type, and other matrices q8_0
};

struct GgufMixture {
  std::string_view name;  // in lower case: "q4_k_m"
  GgufType type;          // of most matrices
  uint32_t number;        // llama.cpp's general.file_type
  GgufExtra extra = GgufExtra::none;

  /// The type of a matrix under llama.cpp's name: "blk.3.ffn_down.weight". A type whose blocks are longer than its rows
  /// gives way to one of as many bits with blocks of 32, and that to f16.
  GgufType type_of(std::string_view tensor, const Shape& shape, const ModelConfig& config) const;
};

/// All of them, by how many bits a weight takes.
std::span<const GgufMixture> gguf_mixtures();
/// llama.cpp's own words too: "q4_k" is q4_k_m. Null for an unknown name.
const GgufMixture* find_gguf_mixture(std::string_view name);
/// The first mixture that is mostly of a type.
const GgufMixture& gguf_mixture(GgufType type);

}  // namespace nought
