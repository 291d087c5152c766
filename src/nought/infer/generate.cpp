#include "nought/infer/generate.h"

#include <algorithm>
#include <numeric>

namespace nought {

namespace {
/// New prompts wait when so many tokens are fed at once: activations stay bounded.
constexpr size_t kTokensAtOnce = 4096;
}  // namespace

void GenerateOptions::validate() const {
  require<ConfigError>(1 <= max_new_tokens && max_new_tokens <= kMostTokens, "--max-new-tokens must be 1 to {}, got {}",
                       kMostTokens, max_new_tokens);
  require<ConfigError>(1 <= batch && batch <= kMostSequences, "--batch-size must be 1 to {}, got {}", kMostSequences,
                       batch);
  sampling.validate();
}

Generator::Generator(Decoder& decoder, const Context& context, DType dtype, int64_t capacity, int64_t sequences)
    : decoder_(decoder), context_(context), cache_(decoder.make_cache(context, capacity, dtype, sequences)) {}

void Generator::check(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options) const {
  options.validate();
  for (const std::vector<int32_t>& prompt : prompts) {
    require<ConfigError>(!prompt.empty(), "the prompt is empty: give at least one token to continue");
    require<ConfigError>(static_cast<int64_t>(prompt.size()) <= cache_.capacity,
                         "a prompt of {} tokens does not fit the {} that there is room for", prompt.size(),
                         cache_.capacity);
  }
}

Generator::Sequence Generator::start(size_t prompt, std::span<const int32_t> ids, int64_t slot) {
  const std::vector<int32_t>& held = cache_.ids[static_cast<size_t>(slot)];
  // The last token is always fed: its logits are asked for.
  const auto common = std::mismatch(held.begin(), held.end(), ids.begin(), ids.end() - 1).first - held.begin();
  const int64_t kept = decoder_.keep_first(cache_, slot, common);
  return {prompt, slot, {ids.begin() + kept, ids.end()}};
}

bool Generator::advance(Sequence& sequence, std::span<float> logits, const GenerateOptions& options,
                        std::vector<int32_t>& produced, TokenSink& sink) const {
  const std::vector<int32_t>& held = cache_.ids[static_cast<size_t>(sequence.slot)];
  const std::vector<float> unchanged =
      sink.wants_log_probabilities() ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>();
  penalise_repetition(logits, held, options.sampling.repetition_penalty);
  const auto token = static_cast<int32_t>(sample_token(logits, options.sampling, produced.size()));
  if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end()) return false;
  produced.push_back(token);
  if (!unchanged.empty()) sink.on_log_probability(sequence.prompt, log_probability(unchanged, token));
  sequence.next = {token};
  return sink.on_token(sequence.prompt, token) && static_cast<int64_t>(produced.size()) < options.max_new_tokens &&
         static_cast<int64_t>(held.size()) < cache_.capacity;
}

std::vector<std::vector<int32_t>> Generator::run(std::span<const std::vector<int32_t>> prompts,
                                                 const GenerateOptions& options, TokenSink& sink) {
  check(prompts, options);
  std::vector<std::vector<int32_t>> produced(prompts.size());
  std::vector<Sequence> active;
  std::vector<int64_t> free(cache_.ids.size());
  std::iota(free.rbegin(), free.rend(), int64_t{0});
  size_t waiting = 0;  // the first prompt that has not begun
  while (!active.empty() || waiting < prompts.size()) {
    size_t tokens = active.size();
    while (!free.empty() && waiting < prompts.size() && (active.empty() || tokens < kTokensAtOnce)) {
      active.push_back(start(waiting, prompts[waiting], free.back()));
      tokens += active.back().next.size();
      free.pop_back();
      ++waiting;
    }
    std::vector<NextTokens> next;
    for (const Sequence& each : active) next.push_back({each.slot, each.next});
    std::vector<float> logits = context_.to_host<float>(decoder_.next_logits(context_, next, cache_));
    const size_t vocab = logits.size() / active.size();
    std::vector<Sequence> going_on;
    for (size_t i = 0; i < active.size(); ++i) {
      Sequence& each = active[i];
      if (advance(each, std::span(logits).subspan(i * vocab, vocab), options, produced[each.prompt], sink)) {
        going_on.push_back(std::move(each));
      } else {
        sink.on_end(each.prompt);
        free.push_back(each.slot);
      }
    }
    active = std::move(going_on);
  }
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
  return Generator(decoder, context, dtype, capacity, std::clamp<int64_t>(count, 1, options.batch))
      .run(prompts, options, sink);
}

}  // namespace nought
