// The buckets of ZeRO: how much is reduced or gathered at once, and what "auto" stands for once the model is known.
#include <utility>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// What transformers fills from the hidden size. The last two are shown though Units make them idle.
struct BucketRule {
  const char* key;
  const char* formula;
  double (*elements)(double hidden);
  const char* effect;
};
constexpr BucketRule kBucketRules[]{
    {"reduce_bucket_size", "hidden_size^2", [](double hidden) { return hidden * hidden; }, ""},
    {"stage3_prefetch_bucket_size", "0.9 x hidden_size^2", [](double hidden) { return 0.9 * hidden * hidden; },
     "; without effect, Units are what moves"},
    {"stage3_param_persistence_threshold", "10 x hidden_size", [](double hidden) { return 10 * hidden; },
     "; without effect, Units are what moves"},
};

}  // namespace

bool has_automatic_buckets(const RunPlan& plan) {
  for (const Resolved& row : plan.resolved)
    for (const BucketRule& rule : kBucketRules)
      if (row.key == rule.key && row.value == rule.formula) return true;
  return false;
}

RunPlan with_automatic_buckets(RunPlan plan, int64_t hidden_size) {
  for (Resolved& row : plan.resolved)
    for (const BucketRule& rule : kBucketRules) {
      if (row.key != rule.key || row.value != rule.formula) continue;
      const auto elements = static_cast<int64_t>(rule.elements(static_cast<double>(hidden_size)));
      row.value = fmt::format("{}", elements);
      if (row.key == "reduce_bucket_size") plan.layout.sharding.reduce_bucket = elements;
    }
  return plan;
}

void explain_automatic_buckets(Resolver& r) {
  const Json& section = r.config.deepspeed;
  const Json zero = section.is_object() ? section.value("zero_optimization", Json()) : Json();
  if (!zero.is_object()) return;
  for (const BucketRule& rule : kBucketRules)
    if (zero.value(rule.key, Json()) == "auto")
      r.plan.resolved.push_back(
          {rule.key, rule.formula, fmt::format("deepspeed: auto <- {}{}", rule.formula, rule.effect)});
  if (const int64_t hidden = model_number(r.config.model, {"hidden_size", "n_embd"}); hidden > 0)
    r.plan = with_automatic_buckets(std::move(r.plan), hidden);
  for (const std::string part : {"offload_param", "offload_optimizer"})
    if (zero.value(Json::json_pointer("/" + part + "/device"), Json()) == "auto")
      r.plan.resolved.push_back({part + ".device", "none",
                                 r.plan.layout.on_gpu()
                                     ? "deepspeed: auto; nothing leaves the device unless the run says so"
                                     : "deepspeed: auto; all of it already lives in host memory"});
}

void resolve_buckets(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  const std::string path = "zero_optimization.";
  const auto resolve = [&](const std::string& key, const Candidate<int64_t>& elements) {
    require_at_least<int64_t>(elements, 0);
    return r.note(key, elements);
  };
  if (zero.reduce_bucket_size.given()) {
    r.plan.layout.sharding.reduce_bucket =
        resolve("reduce_bucket_size", r.deepspeed(path + "reduce_bucket_size", zero.reduce_bucket_size.value));
  }
  if (zero.allgather_bucket_size.automatic())
    r.plan.resolved.push_back({"allgather_bucket_size", "one Unit", "deepspeed: auto <- default"});
  if (!zero.allgather_bucket_size.given()) return;
  const auto elements = r.deepspeed(path + "allgather_bucket_size", zero.allgather_bucket_size.value);
  if (r.plan.layout.zero_stage == 1 || r.plan.layout.zero_stage == 2) {
    r.plan.layout.sharding.gather_bucket = resolve("allgather_bucket_size", elements);
  } else {
    r.warn(fmt::format("{} has no effect at stage {}: {}", elements.place, r.plan.layout.zero_stage,
                       r.plan.layout.zero_stage == 0 ? "every rank updates all parameters"
                                                     : "parameters are gathered when a Unit needs them"));
  }
}

}  // namespace nought
