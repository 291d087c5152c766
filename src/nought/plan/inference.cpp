#include "nought/plan/inference.h"

#include <algorithm>

#include "nought/base/text.h"
#include "nought/infer/generate.h"
#include "nought/infer/rollout.h"
#include "nought/plan/dry_run.h"
#include "nought/zero/sharded_model.h"

namespace nought {

int64_t InferencePlan::total() const {
  if (!draft) return peak;
  const int64_t held = weights + cache;
  return held + draft->weights + draft->cache + std::max(peak - held, draft->pass);
}

int64_t InferencePlan::sequences_in(int64_t bytes) const {
  const int64_t caches = cache + (draft ? draft->cache : 0);
  const int64_t left = bytes - (total() - caches), of_one = caches / sizes.sequences;
  return left <= 0 ? 0 : of_one == 0 ? kMostSequences : left / of_one;
}

InferencePlan plan_inference(const ModelConfig& config, const ModelSource* source, DType dtype,
                             const InferenceSizes& sizes) {
  config.require_language_model(source ? source->folder().string() : "the model");
  require<ConfigError>(1 <= sizes.context && sizes.context <= kMostTokens, "--context must be 1 to {}, got {}",
                       kMostTokens, sizes.context);
  require<ConfigError>(1 <= sizes.sequences && sizes.sequences <= kMostSequences, "--sequences must be 1 to {}, got {}",
                       kMostSequences, sizes.sequences);
  require<ConfigError>(sizes.context <= config.most_cached(), "--context {}: the model generates up to {} tokens",
                       sizes.context, config.most_cached());
  InferencePlan plan{.sizes = sizes, .dtype = dtype};
  CountedWork work;
  const Context context{Memory::create_virtual(), make_counting_kernels(work)};
  const std::unique_ptr<Communicator> alone = make_silent_communicator(context, 0, 1, Wire{});
  Decoder decoder(config);
  if (source) plan.kept = keep_stored_codes(*source, decoder);
  const ShardedModel model(context, *alone, decoder, {.dtype = dtype, .training = false});
  const MemoryLedger& ledger = context.memory->ledger();
  plan.weights = ledger.current(Category::parameters);
  dry_run_answers(decoder, context, dtype, sizes.context, sizes.sequences, /*generations=*/1,
                  {.max_completion_length = 1, .sequences = sizes.sequences, .kv_dtype = sizes.kv_dtype});
  plan.cache = ledger.peak(Category::kv_cache);
  plan.peak = ledger.peak_total();
  return plan;
}

void add_draft(InferencePlan& plan, const ModelConfig& config, const ModelSource& draft) {
  const std::string folder = draft.folder().string();
  require<ConfigError>(draft.config().vocab_size == config.vocab_size,
                       "--speculative {}: its vocabulary has {} tokens, that of the model {}: they must have the same",
                       folder, draft.config().vocab_size, config.vocab_size);
  InferenceSizes sizes = plan.sizes;
  sizes.context = std::min(sizes.context, draft.config().most_cached());
  const InferencePlan own = plan_inference(draft.config(), &draft, draft.dtype(), sizes);
  plan.draft = {.folder = folder,
                .kept = own.kept,
                .weights = own.weights,
                .cache = own.cache,
                .pass = own.peak - own.weights - own.cache};
}

std::string to_text(const InferencePlan& plan, int64_t memory, const std::string& what) {
  const InferenceSizes& sizes = plan.sizes;
  const DType kept = sizes.kv_dtype.value_or(plan.dtype);
  std::string text = fmt::format("inference: {} sequences of {} tokens, computed in {}\n", sizes.sequences,
                                 sizes.context, name_of(plan.dtype));
  text += fmt::format("weights    {:>10}  {}\n", format_bytes(plan.weights),
                      plan.kept.empty() ? "dense" : "kept as " + describe(plan.kept));
  text += fmt::format("cache      {:>10}  in {}, {} for each token\n", format_bytes(plan.cache), kv_dtype_name(kept),
                      format_bytes(plan.cache / (sizes.sequences * sizes.context)));
  text += fmt::format("a pass     {:>10}  beside them, at most\n", format_bytes(plan.peak - plan.weights - plan.cache));
  if (plan.draft) {
    const DraftPlan& draft = *plan.draft;
    text += fmt::format("draft      {:>10}  of {}, {}; its cache {}, a pass {}\n", format_bytes(draft.weights),
                        draft.folder, draft.kept.empty() ? "dense" : "kept as " + describe(draft.kept),
                        format_bytes(draft.cache), format_bytes(draft.pass));
  }
  text += fmt::format("all        {:>10}  ", format_bytes(plan.total()));
  const int64_t most = plan.sequences_in(memory);
  if (plan.total() <= memory)
    return text + fmt::format("fits {} ({}), which has room for {} such sequences\n", what, format_bytes(memory), most);
  return text +
         fmt::format("does not fit {} ({}), which has room for {} such sequences\n", what, format_bytes(memory), most);
}

OrderedJson to_json(const InferencePlan& plan, int64_t memory) {
  OrderedJson kept = OrderedJson::object();
  for (const KeptFormat& each : plan.kept) kept[each.name] = each.tensors;
  OrderedJson json{{"format", kInferencePlanFormat.str()},
                   {"context", plan.sizes.context},
                   {"sequences", plan.sizes.sequences},
                   {"dtype", std::string(name_of(plan.dtype))},
                   {"kv_dtype", kv_dtype_name(plan.sizes.kv_dtype.value_or(plan.dtype))},
                   {"kept", kept},
                   {"weights", plan.weights},
                   {"kv_cache", plan.cache},
                   {"peak", plan.total()},
                   {"memory", memory},
                   {"sequences_that_fit", plan.sequences_in(memory)}};
  if (plan.draft)
    json["draft"] = {{"folder", plan.draft->folder}, {"weights", plan.draft->weights}, {"kv_cache", plan.draft->cache}};
  return json;
}

}  // namespace nought
