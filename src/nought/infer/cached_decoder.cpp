#include "nought/infer/cached_decoder.h"

#include <utility>

namespace nought {

CachedDecoder::CachedDecoder(Decoder& decoder, const Context& context, DType dtype, const CacheOptions& options,
                             Communicator* led)
    : decoder_(decoder),
      context_(context),
      cache_(decoder.make_cache(context, options.capacity, dtype, options.sequences, options.kv_dtype)) {
  if (led && led->size() > 1) plans_ = std::make_unique<StepPlans>(*led, context);
}

void CachedDecoder::keep_first(int64_t sequence, int64_t count) { change({.sequence = sequence, .count = count}); }

void CachedDecoder::copy_first(int64_t from, int64_t to, int64_t count) {
  change({.sequence = to, .from = from, .count = count});
}

void CachedDecoder::change(const CacheChange& change) {
  if (change.from < 0) {
    decoder_.keep_first(cache_, change.sequence, change.count);
  } else {
    decoder_.copy_first(context_, cache_, change.from, change.sequence, change.count);
  }
  if (leads()) changes_.push_back(change);
}

Tensor CachedDecoder::compute(StepPlan::Work work, std::span<const NextTokens> next) {
  if (leads()) plans_->send({.work = work, .changes = std::exchange(changes_, {}), .next = {next.begin(), next.end()}});
  return work == StepPlan::Work::logits ? decoder_.next_logits(context_, next, cache_)
                                        : decoder_.next_hidden(context_, next, cache_);
}

void CachedDecoder::tell(StepPlan::Work work) {
  if (leads()) plans_->send({.work = work});
}

void CachedDecoder::follow() {
  const std::unique_ptr<StepPlans> plans = std::exchange(plans_, nullptr);  // it leads nobody
  require(plans != nullptr, "there is no rank to follow");
  for (;;) {
    const StepPlan plan = plans->receive();
    if (plan.work == StepPlan::Work::end) return;
    for (const CacheChange& each : plan.changes) change(each);
    if (plan.work != StepPlan::Work::none) compute(plan.work, plan.next);
  }
}

}  // namespace nought
