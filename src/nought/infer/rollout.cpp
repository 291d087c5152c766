#include "nought/infer/rollout.h"

#include <algorithm>

#include "nought/infer/generate.h"

namespace nought {

namespace {

/// Ends an answer with any of some tokens.
struct EndsAnswers final : TokenSink {
  explicit EndsAnswers(const std::vector<int32_t>& stop_ids) : stop_ids(stop_ids) {}
  bool on_token(size_t, int32_t token) override {
    return std::find(stop_ids.begin(), stop_ids.end(), token) == stop_ids.end();
  }
  const std::vector<int32_t>& stop_ids;
};

}  // namespace

std::vector<std::vector<int32_t>> write_answers(Decoder& decoder, const Context& context, DType dtype,
                                                std::span<const AnswerRequest> requests,
                                                const RolloutOptions& options) {
  std::vector<std::vector<int32_t>> prompts;
  GenerateOptions generation{.max_new_tokens = options.max_completion_length,
                             .batch = options.sequences,
                             .kv_dtype = options.kv_dtype,
                             .sampling = options.sampling};
  for (const AnswerRequest& each : requests) {
    prompts.emplace_back(each.prompt.begin(), each.prompt.end());
    generation.seeds.push_back(each.seed);
  }
  EndsAnswers ends(options.stop_ids);
  return generate(decoder, context, dtype, prompts, generation, ends);
}

void dry_run_answers(Decoder& decoder, const Context& context, DType dtype, int64_t prompt_tokens, int64_t requests,
                     int64_t generations, const RolloutOptions& options) {
  const int64_t sequences = std::min(requests, options.sequences);
  const int64_t capacity = prompt_tokens + options.max_completion_length - 1;
  DecoderCache cache = decoder.make_cache(context, capacity, dtype, sequences, options.kv_dtype);
  const std::vector<int32_t> ids(static_cast<size_t>(prompt_tokens));
  std::vector<NextTokens> next;
  const int64_t step = decoder.shares_beginnings() ? generations : 1;
  for (int64_t i = 0, left = kTokensAtOnce; i < sequences && left > 0; i += step) {
    const int64_t fed = std::min(left, prompt_tokens);
    next.push_back({i, std::span(ids).first(static_cast<size_t>(fed))});
    left -= fed;
  }
  decoder.next_logits(context, next, cache);
  next.clear();
  // One sequence that is nearly whole tells what the rotation of tokens takes: the tokens of all would be real memory.
  const auto nearly = static_cast<size_t>(capacity - 1);
  for (int64_t i = 0; i < sequences; ++i) {
    std::vector<int32_t>& held = cache.ids[static_cast<size_t>(i)];
    if (i == 0 || held.size() > nearly) held.resize(nearly);
    next.push_back({i, std::span(ids).first(1)});
  }
  decoder.next_logits(context, next, cache);
}

}  // namespace nought
