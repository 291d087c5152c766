#include "nought/infer/rollout.h"

#include <algorithm>
#include <cstring>

#include "nought/comm/first_rank.h"
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
  GenerateOptions generation;
  generation.max_new_tokens = options.max_completion_length;
  generation.batch = options.sequences;
  generation.kv_dtype = options.kv_dtype;
  generation.sampling = options.sampling;
  for (const AnswerRequest& each : requests) {
    prompts.emplace_back(each.prompt.begin(), each.prompt.end());
    generation.seeds.push_back(each.seed);
  }
  EndsAnswers ends(options.stop_ids);
  return generate(decoder, context, dtype, prompts, generation, ends);
}

int64_t bytes_of_answers(int64_t most, int64_t max_completion_length) {
  return most * (1 + max_completion_length) * static_cast<int64_t>(sizeof(int32_t));
}

std::vector<std::vector<int32_t>> answers_of_ranks(Communicator& ranks, const Context& context,
                                                   const std::vector<std::vector<int32_t>>& mine, int64_t most,
                                                   int64_t max_completion_length) {
  // Each has its length first; a place without an answer has -1.
  const auto stride = static_cast<size_t>(1 + max_completion_length);
  std::vector<int32_t> sent(static_cast<size_t>(most) * stride, -1);
  for (size_t i = 0; i < mine.size(); ++i) {
    sent[i * stride] = static_cast<int32_t>(mine[i].size());
    std::copy(mine[i].begin(), mine[i].end(), sent.begin() + static_cast<std::ptrdiff_t>(i * stride) + 1);
  }
  std::string bytes(sent.size() * sizeof(int32_t), '\0');
  std::memcpy(bytes.data(), sent.data(), bytes.size());
  std::vector<std::vector<int32_t>> all;
  for (const std::string& part : texts_of_ranks(ranks, context, bytes)) {
    std::memcpy(sent.data(), part.data(), part.size());
    for (size_t at = 0; at < sent.size(); at += stride)
      if (sent[at] >= 0) {
        const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(at) + 1;
        all.emplace_back(begin, begin + sent[at]);
      }
  }
  return all;
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
