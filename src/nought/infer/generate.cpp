#include "nought/infer/generate.h"

#include <algorithm>

namespace nought {

std::vector<int32_t> generate(Decoder& decoder, const Context& context, DType dtype, std::span<const int32_t> prompt,
                              const GenerateOptions& options, const std::function<void(int32_t)>& on_token) {
  require<ConfigError>(!prompt.empty(), "the prompt is empty: give at least one token to continue");
  require<ConfigError>(options.max_new_tokens >= 1, "--max-new-tokens must be at least 1, got {}",
                       options.max_new_tokens);
  options.sampling.validate();
  const auto length = static_cast<int64_t>(prompt.size());
  DecoderCache cache = decoder.make_cache(context, length + options.max_new_tokens, dtype);
  std::vector<int32_t> produced, next(prompt.begin(), prompt.end());
  while (static_cast<int64_t>(produced.size()) < options.max_new_tokens) {
    const NextTokens fed{0, next};
    const std::vector<float> logits = decoder.next_logits(context, std::span(&fed, 1), cache).to_vector<float>();
    const auto token = static_cast<int32_t>(sample_token(logits, options.sampling, produced.size()));
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end()) break;
    produced.push_back(token);
    on_token(token);
    next = {token};
  }
  return produced;
}

}  // namespace nought
