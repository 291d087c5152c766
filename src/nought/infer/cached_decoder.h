// CachedDecoder: a decoder with the cache of the sequences that it computes.
//
// Where several ranks share the model, each may decide alone what comes next, as all get the same logits. Or rank 0
// leads, because it alone knows of the requests: it sends each computation to the others, which follow().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nought/infer/step_plan.h"
#include "nought/models/decoder.h"

namespace nought {

struct CacheOptions {
  int64_t capacity = 4096;             // the most tokens of a sequence, prompt and generated ones together
  int64_t sequences = 8;               // how many are computed together
  std::optional<DType> kv_dtype = {};  // what the cache keeps; see Decoder::make_cache()
};

class CachedDecoder {
 public:
  /// led: the ranks that rank 0 leads; null: each decides for itself. The decoder and they outlive it.
  CachedDecoder(Decoder& decoder, const Context& context, DType dtype, const CacheOptions& options,
                Communicator* led = nullptr);

  const ModelConfig& config() const { return decoder_.config(); }
  bool shares_beginnings() const { return decoder_.shares_beginnings(); }
  int64_t capacity() const { return cache_.capacity; }
  int64_t sequences() const { return std::ssize(cache_.ids); }
  /// The tokens of a sequence that are in the cache.
  const std::vector<int32_t>& ids(int64_t sequence) const { return cache_.ids[static_cast<size_t>(sequence)]; }

  /// The adapter that these were computed with.
  int32_t adapter(int64_t sequence) const { return cache_.adapters[static_cast<size_t>(sequence)]; }

  // As those of Decoder.
  void keep_first(int64_t sequence, int64_t count);
  void copy_first(int64_t from, int64_t to, int64_t count);
  Tensor next_logits(std::span<const NextTokens> next) { return compute(StepPlan::Work::logits, next); }
  Tensor next_hidden(std::span<const NextTokens> next) { return compute(StepPlan::Work::hidden, next); }

  /// Whether it leads other ranks. What fails then has failed on them, too, and nothing can go on.
  bool leads() const { return plans_ != nullptr; }
  /// Tells the ranks that follow that the first one is there, or to end. Does nothing where there are none.
  void keep_alive() { tell(StepPlan::Work::none); }
  void dismiss() { tell(StepPlan::Work::end); }
  /// On the other ranks: computes what rank 0 does, until it dismisses them.
  void follow();

 private:
  void tell(StepPlan::Work work);
  void change(const CacheChange& change);
  Tensor compute(StepPlan::Work work, std::span<const NextTokens> next);

  Decoder& decoder_;
  Context context_;
  DecoderCache cache_;
  std::unique_ptr<StepPlans> plans_;
  std::vector<CacheChange> changes_ = {};  // since the last plan
};

}  // namespace nought
