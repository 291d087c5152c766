// Adapters as GGUF files, which llama.cpp reads beside a model (--lora).
//
// Design goals: llama.cpp computes with the file what Nought computes. It multiplies a product by alpha / (rank of B):
// what that leaves of a layer's scale is in B. Non-goals: what it has no place for, which is refused by name.
#pragma once

#include <filesystem>

#include "nought/io/gguf_writer.h"
#include "nought/weights/model_source.h"

namespace nought {

/// Writes what the source's adapters add; several are one. Returns the tensors. ConfigError for one that has more than
/// products of low rank, or adds to experts, or to a head that is tied.
std::vector<GgufTensor> write_gguf_adapter(const ModelSource& source, const std::filesystem::path& file, GgufType type,
                                           Memory& memory);

}  // namespace nought
