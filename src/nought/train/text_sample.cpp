#include "nought/train/text_sample.h"

#include <algorithm>

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
int64_t room_for(const SamplePlan& plan, size_t prompt, const ModelConfig& config) {
  if (config.positions != PositionKind::learned) return plan.max_new_tokens;
  return std::min(plan.max_new_tokens, config.max_positions - static_cast<int64_t>(prompt) + 1);
}

}  // namespace

void check_sample(const SamplePlan& plan, const Tokenizer& tokenizer, const ModelConfig& config) {
  const std::vector<int32_t> ids = prompt_ids(plan, tokenizer);
  require<ConfigError>(!ids.empty(), "training.sample_prompt {} has no token", Json(plan.prompt).dump());
  require<ConfigError>(room_for(plan, ids.size(), config) > 0,
                       "training.sample_prompt has {} tokens, the model has learned {} positions", ids.size(),
                       config.max_positions);
}

std::string continue_prompt(ShardedModel& model, Decoder& decoder, const Tokenizer& tokenizer, const SamplePlan& plan) {
  const std::vector<int32_t> prompt = prompt_ids(plan, tokenizer);
  // No stop ids: where ranks gather parameters together, all must make the same passes.
  const GenerateOptions options{
      .max_new_tokens = room_for(plan, prompt.size(), decoder.config()), .batch = 1, .sampling = {.temperature = 0}};
  KeepsAll sink;
  model.expect(decoder.passes(/*backward=*/false));
  std::vector<int32_t> ids =
      generate(decoder, model.context(), model.options().dtype, std::span(&prompt, 1), options, sink).front();
  model.expect({});
  ids.erase(std::find(ids.begin(), ids.end(), tokenizer.separator()), ids.end());
  return tokenizer.decode(ids);
}

}  // namespace nought
