#include "nought/infer/generate.h"

#include <algorithm>
#include <numeric>

namespace nought {

namespace {
/// Passes what happens to a request on to a TokenSink, and keeps its tokens.
class ToSink final : public RequestListener {
 public:
  ToSink(TokenSink& sink, size_t prompt, std::vector<int32_t>& produced, std::exception_ptr& error)
      : sink_(sink), prompt_(prompt), produced_(produced), error_(error) {}
  bool on_token(const ScoredToken& token) override {
    produced_.push_back(token.id);
    if (sink_.wants_log_probabilities()) sink_.on_log_probability(prompt_, token.log_probability);
    return sink_.on_token(prompt_, token.id);
  }
  void on_end(FinishReason reason, std::exception_ptr error) override {
    if (reason == FinishReason::failed) error_ = std::move(error);
    if (reason == FinishReason::stop || reason == FinishReason::length) sink_.on_end(prompt_);
  }

 private:
  TokenSink& sink_;
  size_t prompt_;
  std::vector<int32_t>& produced_;
  std::exception_ptr& error_;
};
}  // namespace

void GenerateOptions::validate() const {
  require<ConfigError>(1 <= max_new_tokens && max_new_tokens <= kMostTokens, "--max-new-tokens must be 1 to {}, got {}",
                       kMostTokens, max_new_tokens);
  require<ConfigError>(1 <= batch && batch <= kMostSequences, "--batch-size must be 1 to {}, got {}", kMostSequences,
                       batch);
  sampling.validate();
}

Generator::Generator(Decoder& decoder, const Context& context, DType dtype, int64_t capacity, int64_t sequences,
                     std::optional<DType> kv_dtype, Speculation speculation)
    : engine_(decoder, context, dtype,
              {.capacity = capacity,
               .sequences = sequences,
               .max_batch_tokens = kTokensAtOnce,
               .kv_dtype = kv_dtype,
               .speculation = std::move(speculation)}) {}

std::vector<std::vector<int32_t>> Generator::run(std::span<const std::vector<int32_t>> prompts,
                                                 const GenerateOptions& options, TokenSink& sink) {
  options.validate();
  std::vector<std::vector<int32_t>> produced(prompts.size());
  std::exception_ptr error;
  std::vector<uint64_t> numbers;
  for (const std::vector<int32_t>& prompt : prompts) engine_.check_prompt(prompt);
  for (size_t i = 0; i < prompts.size(); ++i) {
    InferenceRequest request{.prompt = prompts[i],
                             .max_new_tokens = options.max_new_tokens,
                             .sampling = options.sampling,
                             .stop_ids = options.stop_ids};
    if (!options.seeds.empty()) request.sampling.seed = options.seeds.at(i);
    if (sink.wants_log_probabilities()) request.likeliest = 0;
    numbers.push_back(engine_.submit(std::move(request), std::make_shared<ToSink>(sink, i, produced[i], error)));
  }
  while (!error && engine_.step()) continue;
  for (const uint64_t number : numbers) engine_.cancel(number);
  if (error) std::rethrow_exception(error);
  return produced;
}

std::vector<std::vector<int32_t>> generate(Decoder& decoder, const Context& context, DType dtype,
                                           std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, TokenSink& sink) {
  options.validate();
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  const ModelConfig& config = decoder.config();
  const int64_t capacity = longest + options.max_new_tokens - 1;  // the last is not fed
  require<ConfigError>(capacity <= config.most_cached(),
                       "a prompt of {} tokens and {} new ones exceed the {} positions {}: lower --max-new-tokens",
                       longest, options.max_new_tokens, config.max_positions,
                       config.rotates_by_row()
                           ? "(max_position_embeddings) up to which a model with the rope type \"dynamic\" generates"
                           : "that the model has learned");
  const auto count = static_cast<int64_t>(prompts.size());
  return Generator(decoder, context, dtype, capacity, std::clamp<int64_t>(count, 1, options.batch), options.kv_dtype,
                   options.speculation)
      .run(prompts, options, sink);
}

}  // namespace nought
