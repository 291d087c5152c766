#include "nought/train/text_sample.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "nought/infer/generate.h"

namespace nought {

namespace {

struct KeepsAll final : TokenSink {
  bool on_token(size_t, int32_t) override { return true; }
};

std::vector<int32_t> prompt_ids(const SamplePlan& plan, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(tokenizer.prefix().begin(), tokenizer.prefix().end());
  tokenizer.encode(plan.prompt, ids);
  return ids;
}

/// New tokens that there are positions for.
int64_t room_for(int64_t max_new_tokens, int64_t prompt, const ModelConfig& config) {
  return std::min(max_new_tokens, config.most_cached() - prompt + 1);
}

}  // namespace

void check_sample(const SamplePlan& plan, const Tokenizer& tokenizer, const ModelConfig& config) {
  const std::vector<int32_t> ids = prompt_ids(plan, tokenizer);
  require<ConfigError>(!ids.empty(), "training.sample_prompt {} has no token", Json(plan.prompt).dump());
  require<ConfigError>(room_for(plan.max_new_tokens, std::ssize(ids), config) > 0,
                       "training.sample_prompt has {} tokens, the model has learned {} positions", ids.size(),
                       config.max_positions);
}

std::string continue_prompt(ShardedModel& model, Decoder& decoder, const Tokenizer& tokenizer, const SamplePlan& plan) {
  const std::vector<int32_t> prompt = prompt_ids(plan, tokenizer);
  // No stop ids: where ranks gather parameters together, all must make the same passes.
  const GenerateOptions options{.max_new_tokens = room_for(plan.max_new_tokens, std::ssize(prompt), decoder.config()),
                                .batch = 1,
                                .sampling = {.temperature = 0}};
  KeepsAll sink;
  model.expect(decoder.passes(/*backward=*/false));
  std::vector<int32_t> ids =
      generate(decoder, model.context(), model.options().dtype, std::span(&prompt, 1), options, sink).front();
  model.expect({});
  ids.erase(std::find(ids.begin(), ids.end(), tokenizer.separator()), ids.end());
  // A vocabulary is often padded: an untrained model chooses tokens that the tokenizer does not have.
  std::erase_if(ids, [&](int32_t id) { return id >= tokenizer.vocab_size(); });
  return tokenizer.decode(ids);
}

int64_t prompt_tokens(const SamplePlan& plan, const Tokenizer& tokenizer) {
  return std::ssize(prompt_ids(plan, tokenizer));
}

void dry_run_sample(ShardedModel& model, Decoder& decoder, int64_t prompt_tokens, int64_t max_new_tokens) {
  const int64_t room = room_for(max_new_tokens, prompt_tokens, decoder.config());
  const int64_t capacity = prompt_tokens + std::max<int64_t>(room, 1) - 1;
  const int64_t switches = decoder.config().rope.switch_length();
  DecoderCache cache = decoder.make_cache(model.context(), capacity, model.options().dtype);
  const auto pass = [&](int64_t held, int64_t fed) {
    const std::vector<int32_t> ids(static_cast<size_t>(fed));
    cache.ids[0].resize(static_cast<size_t>(held));
    decoder.next_logits(model.context(), std::array{NextTokens{0, ids}}, cache);
  };
  model.expect(decoder.passes(/*backward=*/false));
  pass(0, prompt_tokens);
  if (prompt_tokens <= switches && switches < capacity) pass(switches, 1);
  // The decoder's tables of positions grow by 128 rows: the last table is there together with the one before it.
  constexpr int64_t kRows = 128;
  if (prompt_tokens < capacity - kRows) pass(capacity - kRows - 1, 1);
  if (prompt_tokens < capacity) pass(capacity - 1, 1);
  model.expect({});
}

}  // namespace nought
