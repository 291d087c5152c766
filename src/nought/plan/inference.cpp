#include "nought/plan/inference.h"

#include <algorithm>

#include "nought/base/text.h"
#include "nought/infer/generate.h"
#include "nought/infer/rollout.h"
#include "nought/plan/dry_run.h"
#include "nought/zero/sharded_model.h"

namespace nought {

int64_t InferencePlan::sequences_in(int64_t bytes) const {
  const int64_t left = bytes - (peak - cache), of_one = cache / sizes.sequences;
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
  text += fmt::format("all        {:>10}  ", format_bytes(plan.peak));
  const int64_t most = plan.sequences_in(memory);
  if (plan.peak <= memory)
    return text + fmt::format("fits {} ({}), which has room for {} such sequences\n", what, format_bytes(memory), most);
  return text +
         fmt::format("does not fit {} ({}), which has room for {} such sequences\n", what, format_bytes(memory), most);
}

OrderedJson to_json(const InferencePlan& plan, int64_t memory) {
  OrderedJson kept = OrderedJson::object();
  for (const KeptFormat& each : plan.kept) kept[each.name] = each.tensors;
  return {{"format", kInferencePlanFormat.str()},
          {"context", plan.sizes.context},
          {"sequences", plan.sizes.sequences},
          {"dtype", std::string(name_of(plan.dtype))},
          {"kv_dtype", kv_dtype_name(plan.sizes.kv_dtype.value_or(plan.dtype))},
          {"kept", kept},
          {"weights", plan.weights},
          {"kv_cache", plan.cache},
          {"peak", plan.peak},
          {"memory", memory},
          {"sequences_that_fit", plan.sequences_in(memory)}};
}

}  // namespace nought
