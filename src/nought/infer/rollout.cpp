#include "nought/infer/rollout.h"

#include <algorithm>
#include <exception>

#include "nought/infer/inference_engine.h"

namespace nought {

namespace {

/// So many tokens of prompts are computed at once.
constexpr int64_t kPromptTokensAtOnce = 2048;

class AnswerWriter final : public RequestListener {
 public:
  AnswerWriter(std::vector<int32_t>& answer, const std::vector<int32_t>& stop_ids, std::exception_ptr& error)
      : answer_(answer), stop_ids_(stop_ids), error_(error) {}
  bool on_token(const ScoredToken& token) override {
    answer_.push_back(token.id);
    return std::find(stop_ids_.begin(), stop_ids_.end(), token.id) == stop_ids_.end();
  }
  void on_end(FinishReason reason, std::exception_ptr error) override {
    if (reason == FinishReason::failed) error_ = std::move(error);
  }

 private:
  std::vector<int32_t>& answer_;
  const std::vector<int32_t>& stop_ids_;
  std::exception_ptr& error_;
};

}  // namespace

std::vector<std::vector<int32_t>> write_answers(Decoder& decoder, const Context& context, DType dtype,
                                                std::span<const AnswerRequest> requests,
                                                const RolloutOptions& options) {
  std::vector<std::vector<int32_t>> answers(requests.size());
  if (requests.empty()) return answers;
  size_t longest = 0;
  for (const AnswerRequest& each : requests) longest = std::max(longest, each.prompt.size());
  const int64_t capacity = static_cast<int64_t>(longest) + options.max_completion_length - 1;  // the last is not fed
  require<ConfigError>(capacity <= decoder.config().most_cached(),
                       "a prompt of {} tokens and an answer of {} exceed the {} positions of the model: lower "
                       "alignment.max_completion_length",
                       longest, options.max_completion_length, decoder.config().max_positions);
  InferenceEngine engine(decoder, context, dtype,
                         {.capacity = capacity,
                          .sequences = std::min(std::ssize(requests), options.sequences),
                          .max_batch_tokens = kPromptTokensAtOnce});
  std::exception_ptr error;
  for (size_t i = 0; i < requests.size(); ++i) {
    const AnswerRequest& each = requests[i];
    engine.submit({.prompt = {each.prompt.begin(), each.prompt.end()},
                   .max_new_tokens = options.max_completion_length,
                   .sampling = {.temperature = options.temperature, .seed = each.seed}},
                  std::make_shared<AnswerWriter>(answers[i], options.stop_ids, error));
  }
  while (!error && engine.step()) continue;
  if (error) std::rethrow_exception(error);
  return answers;
}

void dry_run_answers(Decoder& decoder, const Context& context, DType dtype, int64_t prompt_tokens, int64_t requests,
                     const RolloutOptions& options) {
  const int64_t sequences = std::min(requests, options.sequences);
  const int64_t capacity = prompt_tokens + options.max_completion_length - 1;
  DecoderCache cache = decoder.make_cache(context, capacity, dtype, sequences);
  const std::vector<int32_t> ids(static_cast<size_t>(prompt_tokens));
  std::vector<NextTokens> next;
  for (int64_t i = 0, left = kPromptTokensAtOnce; i < sequences && left > 0; ++i) {
    const int64_t fed = std::min(left, prompt_tokens);
    next.push_back({i, std::span(ids).first(static_cast<size_t>(fed))});
    left -= fed;
  }
  decoder.next_logits(context, next, cache);
  next.clear();
  for (int64_t i = 0; i < sequences; ++i) {
    cache.ids[static_cast<size_t>(i)].resize(static_cast<size_t>(capacity - 1));
    next.push_back({i, std::span(ids).first(1)});
  }
  decoder.next_logits(context, next, cache);
}

}  // namespace nought
