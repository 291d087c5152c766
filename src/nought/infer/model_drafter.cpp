#include "nought/infer/model_drafter.h"

#include <algorithm>

#include "nought/infer/generate.h"

namespace nought {

ModelDrafter::ModelDrafter(Decoder& decoder, const Context& context, DType dtype, const CacheOptions& options)
    : context_(context), cache_(decoder, context, dtype, options) {
  require<ConfigError>(cache_.shares_beginnings(),
                       "--speculative: a {} model cannot guess, as no token can be taken back from its cache: name "
                       "another one, or lookup",
                       cache_.config().family);
}

std::vector<std::vector<int32_t>> ModelDrafter::guess(std::span<const DraftRequest> requests) {
  std::vector<Draft> drafts;
  for (const DraftRequest& each : requests) {
    drafts.push_back({.request = &each, .text = {each.ids.begin(), each.ids.end()}});
    const std::vector<int32_t>& held = cache_.ids(each.sequence);
    // The last token is computed in any case, for its logits.
    const auto common = std::mismatch(held.begin(), held.end(), each.ids.begin(), each.ids.end() - 1).first;
    cache_.keep_first(each.sequence, common - held.begin());
  }
  for (;;) {
    std::vector<Draft*> open;
    for (Draft& each : drafts)
      if (std::ssize(each.guess) < each.request->most && std::ssize(each.text) <= cache_.capacity())
        open.push_back(&each);
    if (open.empty()) break;
    compute(open);
  }
  std::vector<std::vector<int32_t>> guesses;
  for (Draft& each : drafts) guesses.push_back(std::move(each.guess));
  return guesses;
}

void ModelDrafter::compute(std::span<Draft*> drafts) {
  std::vector<NextTokens> next;
  std::vector<Draft*> fed;
  int64_t room = kTokensAtOnce;
  for (Draft* each : drafts) {
    const int64_t sequence = each->request->sequence, held = std::ssize(cache_.ids(sequence));
    const int64_t count = std::min(std::ssize(each->text) - held, room);
    if (count == 0) break;  // the rest waits
    room -= count;
    next.push_back(
        {sequence,
         std::span<const int32_t>(each->text).subspan(static_cast<size_t>(held), static_cast<size_t>(count))});
    fed.push_back(each);
  }
  std::vector<float> logits = context_.to_host<float>(cache_.next_logits(next));
  const size_t vocab = logits.size() / next.size();
  for (size_t i = 0; i < fed.size(); ++i)
    if (cache_.ids(fed[i]->request->sequence).size() == fed[i]->text.size())
      draw(*fed[i], std::span(logits).subspan(i * vocab, vocab));
}

void ModelDrafter::draw(Draft& draft, std::span<float> logits) const {
  const DraftRequest& request = *draft.request;
  const uint64_t position = request.position + draft.guess.size();
  const std::span<const int32_t> text = draft.text;
  adjust_logits(logits, request.sampling, text, text.last(static_cast<size_t>(position)));
  const auto token = static_cast<int32_t>(sample_token(logits, request.sampling, position));
  draft.guess.push_back(token);
  draft.text.push_back(token);
}

}  // namespace nought
