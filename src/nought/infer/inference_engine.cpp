#include "nought/infer/inference_engine.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace nought {

namespace {
/// Logits of a prompt's tokens that are read at once take at most so many numbers.
constexpr int64_t kScoredLogits = int64_t{1} << 25;
/// A prompt waits for so many tokens that another one is about to compute.
constexpr int64_t kWorthWaiting = 16;

/// How many of its tokens a prompt can have from a sequence of these, with that adapter. The last is always computed,
/// as its logits are asked for, and so is a prompt whose tokens are scored.
int64_t common_tokens(const InferenceRequest& request, std::span<const int32_t> ids, int32_t adapter) {
  if (request.scores_prompt || request.adapter != adapter) return 0;
  const std::vector<int32_t>& prompt = request.prompt;
  return std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end() - 1).first - ids.begin();
}
}  // namespace

ScoredToken score_token(std::span<const float> logits, int32_t id, int64_t count) {
  const LogProbabilities scores(logits);
  ScoredToken token{id, scores.of(id), {}};
  if (count == 0) return token;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = order.begin() + std::clamp<int64_t>(count, 0, std::ssize(order));
  std::partial_sort(order.begin(), kept, order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto each = order.begin(); each != kept; ++each) token.likeliest.push_back({*each, scores.of(*each)});
  return token;
}

InferenceEngine::InferenceEngine(Decoder& decoder, const Context& context, DType dtype, const Options& options,
                                 Communicator* led)
    : context_(context),
      options_(options),
      cache_(decoder, context, dtype, options.cache(), led),
      free_(static_cast<size_t>(cache_.sequences())) {
  require<ConfigError>(options.max_batch_tokens >= 1, "the most tokens of a step must be at least 1, got {}",
                       options.max_batch_tokens);
  require<ConfigError>(!options.speculation.drafter || cache_.shares_beginnings(),
                       "--speculative: guessed tokens cannot be taken back from the cache of this {} model, whose {}: "
                       "leave the option out",
                       cache_.config().family,
                       cache_.config().keeps_states() ? "layers keep states" : "rotations change with the length");
  std::iota(free_.begin(), free_.end(), int64_t{0});
}

void InferenceEngine::check_prompt(std::span<const int32_t> prompt) const {
  const int64_t vocab_size = cache_.config().vocab_size;
  require<ConfigError>(!prompt.empty(), "the prompt is empty: give at least one token to continue");
  require<ConfigError>(std::ssize(prompt) <= cache_.capacity(),
                       "a prompt of {} tokens does not fit the {} that there is room for", prompt.size(),
                       cache_.capacity());
  for (const int32_t id : prompt)
    require<ConfigError>(0 <= id && id < vocab_size, "{} is not a token of the model (0 to {})", id, vocab_size - 1);
}

uint64_t InferenceEngine::submit(InferenceRequest request, std::shared_ptr<RequestListener> listener) {
  check_prompt(request.prompt);
  request.sampling.validate();
  waiting_.push_back({.number = ++last_number_,
                      .request = std::move(request),
                      .listener = std::move(listener),
                      .guesses = options_.speculation.tokens});
  return last_number_;
}

void InferenceEngine::cancel(uint64_t number) {
  const auto is_it = [&](const Sequence& each) { return each.number == number; };
  if (const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it); found != waiting_.end()) {
    const std::shared_ptr<RequestListener> listener = std::move(found->listener);
    waiting_.erase(found);
    listener->on_end(FinishReason::cancelled, nullptr);
  } else if (const auto active = std::find_if(running_.begin(), running_.end(), is_it); active != running_.end()) {
    Sequence sequence = std::move(*active);
    running_.erase(active);
    end(sequence, FinishReason::cancelled);
  }
}

void InferenceEngine::cancel_all() {
  while (!waiting_.empty()) cancel(waiting_.front().number);
  while (!running_.empty()) cancel(running_.front().number);
}

int64_t InferenceEngine::common_tokens_in(int64_t slot, const InferenceRequest& request) const {
  return common_tokens(request, cache_.ids(slot), cache_.adapter(slot));
}

int64_t InferenceEngine::take_slot(const InferenceRequest& request) {
  auto best = free_.begin();
  int64_t most = -1;
  for (auto each = free_.begin(); each != free_.end(); ++each) {
    const int64_t common = common_tokens_in(*each, request);
    if (common > most) best = each, most = common;
  }
  const int64_t slot = *best;
  free_.erase(best);
  return slot;
}

void InferenceEngine::admit(int64_t room) {
  while (!waiting_.empty() && !waiting_.front().request.pooling && !free_.empty() && room > 0) {
    Sequence sequence = std::move(waiting_.front());
    waiting_.pop_front();
    sequence.slot = take_slot(sequence.request);
    cache_.keep_first(sequence.slot, common_tokens_in(sequence.slot, sequence.request));
    if (!begin(sequence, running_)) continue;
    if (!sequence.waits) room -= std::ssize(sequence.next);
    running_.push_back(std::move(sequence));
  }
}

bool InferenceEngine::begin(Sequence& sequence, std::span<const Sequence> before) {
  const InferenceRequest& request = sequence.request;
  int64_t kept = std::ssize(held(sequence)), from = sequence.slot, coming = 0;
  if (cache_.shares_beginnings()) {
    for (int64_t slot = 0; slot < cache_.sequences(); ++slot)
      if (const int64_t common = common_tokens_in(slot, request); common > kept) kept = common, from = slot;
    for (const Sequence& each : before)
      if (each.produced.empty())
        coming = std::max(coming, common_tokens(request, each.request.prompt, each.request.adapter));
  }
  sequence.waits = coming >= kept + kWorthWaiting;
  if (sequence.waits) return true;
  if (from != sequence.slot) cache_.copy_first(from, sequence.slot, kept);
  sequence.next.assign(request.prompt.begin() + kept, request.prompt.end());
  prompt_tokens_ += std::ssize(request.prompt);
  reused_tokens_ += kept;
  try {
    sequence.listener->on_start(kept);
  } catch (...) {
    end(sequence, FinishReason::failed, std::current_exception());
    return false;
  }
  return true;
}

void InferenceEngine::begin_waiting() {
  if (std::ranges::none_of(running_, &Sequence::waits)) return;
  std::vector<Sequence> all = std::exchange(running_, {});
  for (Sequence& each : all)
    if (!each.waits || begin(each, running_)) running_.push_back(std::move(each));
}

void InferenceEngine::plan_step() {
  begin_waiting();
  int64_t room = options_.max_batch_tokens;
  add_guesses();
  for (Sequence& each : running_) {
    each.fed = each.produced.empty() ? 0 : std::ssize(each.next);
    room -= each.fed;
  }
  for (const Sequence& each : running_)
    if (each.fed == 0) room -= std::ssize(each.next);  // none of one that waits
  admit(room);
  room = options_.max_batch_tokens;
  for (const Sequence& each : running_) room -= each.fed;
  const int64_t limit = cache_.config().rope.switch_length(), vocab_size = cache_.config().vocab_size;
  for (Sequence& each : running_) {
    if (each.fed > 0 || each.waits) continue;
    const int64_t rest = std::ssize(each.next);
    each.fed = std::clamp<int64_t>(room, 0, rest);
    if (each.request.scores_prompt) each.fed = std::min(each.fed, std::max<int64_t>(1, kScoredLogits / vocab_size));
    // Beyond this length all tokens rotate otherwise: the logits of a chunk would be those of a shorter text.
    if (each.request.scores_prompt && limit > 0 && std::ssize(each.request.prompt) > limit) each.fed = rest;
    room -= each.fed;
  }
}

int64_t InferenceEngine::most_guesses(const Sequence& sequence) const {
  if (sequence.produced.empty()) return 0;
  return std::min({sequence.guesses, sequence.request.max_new_tokens - std::ssize(sequence.produced) - 1,
                   cache_.capacity() - std::ssize(held(sequence)) - 1});
}

void InferenceEngine::add_guesses() {
  if (!options_.speculation.drafter) return;
  std::vector<Sequence*> guessed;
  std::vector<std::vector<int32_t>> texts;
  std::vector<DraftRequest> requests;
  const int64_t generating =
      std::ranges::count_if(running_, [](const Sequence& each) { return !each.produced.empty(); });
  int64_t room = (options_.max_batch_tokens - generating) / 2;  // the other half is for prompts
  for (Sequence& each : running_) {
    const int64_t most = std::min(most_guesses(each), room);
    if (most < 1) continue;
    room -= most;
    guessed.push_back(&each);
    texts.push_back(held(each));
    texts.back().push_back(each.next[0]);
    requests.push_back({.sequence = each.slot,
                        .ids = texts.back(),
                        .most = most,
                        .sampling = each.request.sampling,
                        .position = each.produced.size()});
  }
  if (requests.empty()) return;
  const auto guesses = options_.speculation.drafter->guess(requests);
  for (size_t i = 0; i < guessed.size(); ++i)
    guessed[i]->next.insert(guessed[i]->next.end(), guesses[i].begin(), guesses[i].end());
}

Tensor InferenceEngine::compute(std::vector<Interval>& rows) {
  rows.resize(running_.size());
  std::vector<size_t> order(running_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t index) { return running_[index].request.adapter; });
  std::vector<NextTokens> next;
  int64_t begin = 0;
  for (const size_t index : order) {
    const Sequence& each = running_[index];
    if (each.fed == 0) continue;
    const bool every = each.request.scores_prompt || !each.produced.empty();
    const auto ids = std::span(each.next).first(static_cast<size_t>(each.fed));
    rows[index] = {begin, begin + (every ? each.fed : 1)};
    begin = rows[index].end;
    next.push_back({.sequence = each.slot, .ids = ids, .wants_every = every, .adapter = each.request.adapter});
  }
  return cache_.next_logits(next);
}

void InferenceEngine::embed() {
  Sequence sequence = std::move(waiting_.front());
  waiting_.pop_front();
  sequence.slot = free_.front();
  free_.pop_front();
  FinishReason reason = FinishReason::stop;
  std::exception_ptr error;
  bool model_failed = false;
  try {
    sequence.listener->on_start(0);
    model_failed = true;  // until it has not
    const std::vector<float> values = embedding_of(sequence);
    model_failed = false;
    sequence.listener->on_embedding(values);
  } catch (...) {
    reason = FinishReason::failed;
    error = std::current_exception();
  }
  prompt_tokens_ += std::ssize(sequence.request.prompt);
  cache_.keep_first(sequence.slot, 0);
  free_.push_front(sequence.slot);  // it holds nothing that another request might begin with
  sequence.listener->on_end(reason, error);
  if (model_failed && cache_.leads()) std::rethrow_exception(error);
}

std::vector<float> InferenceEngine::embedding_of(const Sequence& sequence) {
  const std::span<const int32_t> prompt = sequence.request.prompt;
  const int64_t limit = cache_.config().rope.switch_length();
  const auto all = static_cast<int64_t>(prompt.size());
  // Beyond the limit all tokens rotate otherwise, as in plan_step().
  const int64_t most = limit > 0 && all > limit ? all : options_.max_batch_tokens;
  cache_.keep_first(sequence.slot, 0);
  StatePool pool(*sequence.request.pooling, cache_.config().hidden_size);
  for (int64_t at = 0; at < all && !pool.is_done(); at += most) {
    const auto part = prompt.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(most, all - at)));
    const NextTokens next{
        .sequence = sequence.slot, .ids = part, .wants_every = true, .adapter = sequence.request.adapter};
    pool.add(context_.to_host<float>(cache_.next_hidden(std::span(&next, 1))));
  }
  return pool.result();
}

bool InferenceEngine::step() {
  if (!waiting_.empty() && waiting_.front().request.pooling && !free_.empty()) return embed(), true;
  plan_step();
  if (running_.empty()) return false;
  std::vector<Interval> rows;
  std::vector<float> logits;
  try {
    logits = context_.to_host<float>(compute(rows));
  } catch (...) {
    fail_all(std::current_exception());
    if (cache_.leads()) throw;
    return true;
  }
  const int64_t all = std::ranges::max(rows, {}, &Interval::end).end, vocab = std::ssize(logits) / all;
  std::vector<Sequence> going_on;
  auto row = rows.begin();
  for (Sequence& each : std::exchange(running_, {})) {
    const Interval own = *row++;
    const auto part =
        std::span(logits).subspan(static_cast<size_t>(own.begin * vocab), static_cast<size_t>(own.size() * vocab));
    if (advance(each, part, own.size())) going_on.push_back(std::move(each));
  }
  running_ = std::move(going_on);
  return true;
}

void InferenceEngine::score_prompt(const Sequence& sequence, std::span<const float> logits, int64_t rows) const {
  const std::vector<int32_t>& prompt = sequence.request.prompt;
  const auto begin = std::ssize(held(sequence)) - rows;  // the place of the first token that was computed
  const auto vocab = std::ssize(logits) / rows;
  for (int64_t i = 0; i < rows && begin + i + 1 < std::ssize(prompt); ++i)
    sequence.listener->on_prompt_token(
        score_token(logits.subspan(static_cast<size_t>(i * vocab), static_cast<size_t>(vocab)),
                    prompt[static_cast<size_t>(begin + i + 1)], sequence.request.likeliest.value_or(0)));
}

bool InferenceEngine::advance(Sequence& sequence, std::span<float> logits, int64_t rows) {
  if (rows == 0) return true;
  std::optional<FinishReason> reason;
  std::exception_ptr error;
  try {
    if (sequence.produced.empty()) {
      if (sequence.request.scores_prompt) score_prompt(sequence, logits, rows);
      sequence.next.erase(sequence.next.begin(), sequence.next.begin() + sequence.fed);
      if (!sequence.next.empty()) return true;  // the prompt goes on
      reason = draw(sequence, logits.last(logits.size() / static_cast<size_t>(rows)), held(sequence));
    } else {
      reason = draw_guessed(sequence, logits);
    }
  } catch (...) {
    reason = FinishReason::failed;
    error = std::current_exception();
  }
  if (reason) end(sequence, *reason, std::move(error));
  return !reason;
}

std::optional<FinishReason> InferenceEngine::draw_guessed(Sequence& sequence, std::span<float> logits) {
  const std::vector<int32_t> fed = std::exchange(sequence.next, {});
  const size_t rows = fed.size(), vocab = logits.size() / rows, before = held(sequence).size() - rows;
  size_t right = 0;
  std::optional<FinishReason> reason;
  for (;; ++right) {
    const std::span<const int32_t> ids = std::span(held(sequence)).first(before + right + 1);
    reason = draw(sequence, logits.subspan(right * vocab, vocab), ids);
    if (reason || right + 1 == rows || sequence.next[0] != fed[right + 1]) break;
  }
  if (rows == 1) return reason;
  cache_.keep_first(sequence.slot, static_cast<int64_t>(before + right + 1));
  const int64_t accepted = static_cast<int64_t>(right), guessed = static_cast<int64_t>(rows) - 1;
  speculated_.drafts += 1;
  speculated_.guessed += guessed;
  speculated_.accepted += accepted;
  speculated_.accepted_at.resize(static_cast<size_t>(options_.speculation.tokens));
  for (size_t i = 0; i < right; ++i) ++speculated_.accepted_at[i];
  sequence.guesses = std::min(accepted == guessed ? 2 * sequence.guesses : accepted + 1, options_.speculation.tokens);
  return reason;
}

std::optional<FinishReason> InferenceEngine::draw(Sequence& sequence, std::span<float> logits,
                                                  std::span<const int32_t> ids) {
  InferenceRequest& request = sequence.request;
  if (request.max_new_tokens == 0) return FinishReason::length;
  const std::vector<float> unchanged =
      request.likeliest ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>();
  const auto count = std::ssize(sequence.produced);
  adjust_logits(logits, request.sampling, ids, sequence.produced);
  if (count < request.min_new_tokens)
    for (const int32_t id : request.stop_ids) logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  if (request.constraint) request.constraint->apply(logits, request.stop_ids);
  const auto token = static_cast<int32_t>(sample_token(logits, request.sampling, static_cast<uint64_t>(count)));
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), token) != request.stop_ids.end())
    return FinishReason::stop;
  sequence.produced.push_back(token);
  sequence.next = {token};
  if (request.constraint) request.constraint->take(token);
  const bool goes_on = sequence.listener->on_token(request.likeliest ? score_token(unchanged, token, *request.likeliest)
                                                                     : ScoredToken{.id = token});
  if (!goes_on || (request.constraint && request.constraint->complete())) return FinishReason::stop;
  if (count + 1 < request.max_new_tokens && std::ssize(ids) < cache_.capacity()) return std::nullopt;
  return FinishReason::length;
}

void InferenceEngine::end(Sequence& sequence, FinishReason reason, std::exception_ptr error) {
  free_.push_back(sequence.slot);
  sequence.listener->on_end(reason, std::move(error));
}

void InferenceEngine::fail_all(const std::exception_ptr& error) {
  for (Sequence& each : std::exchange(running_, {})) {
    cache_.keep_first(each.slot, 0);  // what the cache holds of it is not known
    end(each, FinishReason::failed, error);
  }
}

InferenceEngine::Counts InferenceEngine::counts() const {
  Counts counts{.running = std::ssize(running_),
                .waiting = std::ssize(waiting_),
                .prompt_tokens = prompt_tokens_,
                .reused_tokens = reused_tokens_,
                .speculated = speculated_};
  for (const Sequence& each : running_) counts.cached_tokens += std::ssize(held(each));
  return counts;
}

}  // namespace nought
