// Generation: one sequence, token by token, with a KV cache.
#pragma once

#include <functional>
#include <vector>

#include "nought/infer/sampling.h"
#include "nought/models/decoder.h"

namespace nought {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingParameters sampling;
  std::vector<int32_t> stop_ids;  // generation ends before one of these
};

/// Continues `prompt` (at least one token), calling on_token for each new one as it comes. Returns the new tokens.
/// Error if prompt and new tokens exceed the positions of a model that has learned them.
std::vector<int32_t> generate(Decoder& decoder, const Context& context, DType dtype, std::span<const int32_t> prompt,
                              const GenerateOptions& options, const std::function<void(int32_t)>& on_token);

}  // namespace nought
