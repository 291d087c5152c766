// The section adapter: peft's keys, or the folder of an adapter that the run goes on from.
#include <cmath>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

constexpr const char* kPlusKey = "loraplus_lr_ratio";  // no key of peft's file: a run's

/// LoRA+ (arXiv 2402.12354): B learns faster than A.
void take_plus_ratio(Resolver& r, Json& section, const std::string& key) {
  const Json ratio = section.value(kPlusKey, Json());
  section.erase(kPlusKey);
  if (ratio.is_null()) return;
  const std::string path = join_path(key, kPlusKey);
  require<ConfigError>(ratio.is_number() && std::isfinite(ratio.get<double>()) && ratio.get<double>() > 0,
                       "{}: expected a finite number > 0, found {}", r.origins.place(path), describe_json(ratio));
  r.plan.layout.sharding.optimizer.groups.push_back({.pattern = "\\.lora_B\\.", .lr_scale = ratio.get<double>()});
  r.plan.resolved.push_back({kPlusKey, ratio.dump(), path + ": the learning rate of each B is so much higher"});
}

void take_config(Resolver& r, const AdapterConfig& adapter) {
  r.plan.adapter = adapter;
  require<ConfigError>(adapter.base.empty() || adapter.base == r.plan.model_dir,
                       "{}.base_model_name_or_path is \"{}\", and \"model\" is \"{}\": leave the former out",
                       r.plan.adapter_place, adapter.base, r.plan.model_dir);
  r.plan.resolved.push_back({"adapter",
                             fmt::format("lora, r {}, alpha {:g}{}", adapter.r, adapter.alpha,
                                         adapter.rslora ? ", scaled by the root of r" : ""),
                             "the model stays frozen"});
}

}  // namespace

void resolve_adapter_section(Resolver& r) {
  const RunConfig& config = r.config;
  require<ConfigError>(config.adapter.is_null() || config.peft_config.is_null(),
                       "{} and {} are the same key: leave one out", r.origins.place("adapter"),
                       r.origins.place("peft_config"));
  const std::string key = config.adapter.is_null() ? "peft_config" : "adapter";
  Json section = config.adapter.is_null() ? config.peft_config : config.adapter;
  if (section.is_null()) return;
  r.plan.adapter_place = r.origins.place(key);
  if (section.is_object()) take_plus_ratio(r, section, key);
  if (!section.is_string()) {
    take_config(r, AdapterConfig::from_json(OrderedJson::parse(section.dump()), r.origins, key));
  } else {
    r.plan.adapter_dir = section.get<std::string>();
    require<ConfigError>(!r.plan.adapter_dir.empty(), "{}: expected a folder's path, found \"\"", r.plan.adapter_place);
    r.plan.resolved.push_back({"adapter", r.plan.adapter_dir, "is trained on; the model stays frozen"});
  }
}

void check_adapter(Resolver& r) {
  if (!r.plan.adapts()) return;
  const auto refuse = [&](bool given, const std::string& key, std::string_view why) {
    require<ConfigError>(!given, "{} does not go with {}: {}", r.origins.place(key), r.plan.adapter_place, why);
  };
  const TrainingConfig& t = r.config.training;
  constexpr std::string_view kFrozen =
      "with an adapter the whole model is frozen; modules_to_save names what else is trained: remove it";
  refuse(!t.freeze.value.empty(), "training.freeze", kFrozen);
  refuse(!t.trainable.value.empty(), "training.trainable", kFrozen);
  refuse(r.plan.resize_vocab, "training.resize_vocab", "a vocabulary that grows is not supported with an adapter yet");
}

}  // namespace nought
