#include "nought/config/ds_config.h"

#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::ds_config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Result {
  DsConfig config;
  std::vector<std::string> warnings;
};

Result read(std::string_view text) {
  Origins origins("RUN.json");
  origins.add_file("deepspeed", "ds.json");
  Result result;
  result.config = read_ds_config(parse_json(text, "ds.json"), origins, result.warnings);
  return result;
}

std::string error_of(std::string_view text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

/// {"a": {"b": VALUE}} from "a.b".
Json nested(std::string_view path, const Json& value) {
  Json json;
  apply_override(json, {std::string(path), value});
  return json;
}

std::string concrete(const KeyRule& rule) {
  std::string path(rule.path);
  if (path.ends_with(".*")) path.replace(path.size() - 1, 1, "anything");
  return path;
}

std::vector<Json> defaults_of(const KeyRule& rule) {
  std::vector<Json> values;
  std::string text(rule.defaults);
  for (size_t bar; (bar = text.find(" | ")) != std::string::npos; text.erase(0, bar + 3))
    values.push_back(Json::parse(text.substr(0, bar)));
  values.push_back(Json::parse(text));
  return values;
}

/// Beside optimizer.params and scheduler.params a type has to stand.
std::string with_type(Json json) {
  if (json.contains("optimizer")) json["optimizer"]["type"] = "AdamW";
  if (json.contains("scheduler")) json["scheduler"]["type"] = "WarmupLR";
  return json.dump();
}

TEST(DsConfig, every_key_at_its_default_is_accepted_silently) {
  for (const KeyRule& rule : ds_key_rules())
    for (const Json& value : defaults_of(rule))
      EXPECT_THAT(read(with_type(nested(concrete(rule), value))).warnings, IsEmpty()) << rule.path;
}

TEST(DsConfig, every_key_is_known_once) {
  std::set<std::string> known;
  for (const KeyInfo& key : list_keys<DsConfig>()) EXPECT_TRUE(known.insert(key.path).second) << key.path;
  for (const KeyRule& rule : ds_key_rules()) EXPECT_TRUE(known.insert(std::string(rule.path)).second) << rule.path;
}

Json another(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return 123456;
  if (value.is_string() || value.is_null()) return "something";
  return value.is_array() ? Json{"something"} : Json{{"something", 1}};
}

TEST(DsConfig, a_value_that_is_not_the_default_is_warned_about_or_refused_by_name) {
  for (const KeyRule& rule : ds_key_rules()) {
    const std::vector<Json> defaults = defaults_of(rule);
    const bool free = rule.status == KeyStatus::gated || rule.status == KeyStatus::enabled;
    if (free || defaults.size() > 1) continue;
    const std::string text = with_type(nested(rule.path, another(defaults[0])));
    if (rule.status == KeyStatus::refused) {
      EXPECT_THAT(error_of(text), HasSubstr("ds.json: " + std::string(rule.path) + " = ")) << rule.path;
      EXPECT_THAT(error_of(text), HasSubstr(std::string(rule.reason))) << rule.path;
    } else {
      EXPECT_THAT(read(text).warnings, ElementsAre(HasSubstr(std::string(rule.path) + " = "))) << rule.path;
    }
  }
}

TEST(DsConfig, a_refusal_names_place_value_reason_and_what_is_accepted) {
  EXPECT_EQ(error_of(R"({"fp32_allreduce": true})"),
            "ds.json: fp32_allreduce = true is not supported: write communication_data_type = \"fp32\"; only false is "
            "accepted");
  EXPECT_THAT(error_of(R"({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})"), HasSubstr("ZenFlow"));
}

TEST(DsConfig, a_key_without_effect_is_a_warning_with_its_reason) {
  EXPECT_THAT(
      read(R"({"zero_optimization": {"prefetch_bucket_size": 2e8}})").warnings,
      ElementsAre("ds.json: zero_optimization.prefetch_bucket_size = 200000000.0 has no effect: the next Unit is "
                  "prefetched, whole"));
}

TEST(DsConfig, keys_that_people_write_for_people_are_notes) {
  EXPECT_THAT(
      read(R"({"_comment": "zero 3", "comment": 1, "//": "x", "zero_optimization": {"_why": {"stage": 9}}})").warnings,
      IsEmpty());
  EXPECT_THAT(read(R"({"commment": 1})").warnings, ElementsAre(HasSubstr("commment is not a key of ds_config.json")));
}

TEST(DsConfig, one_run_tells_everything_that_is_wrong) {
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stge": 2, "zenflow": true}, "seeed": 1})"),
            "ds.json: seeed: unknown key (did you mean \"seed\"?); ds.json: zero_optimization.stge: unknown key (did "
            "you mean \"stage\"?); ds.json: zero_optimization.zenflow = true is not supported: ZenFlow updates "
            "some columns late, which changes results");
}

TEST(DsConfig, old_and_unprefixed_names_are_read) {
  EXPECT_TRUE(read(R"({"bfloat16": {"enabled": true}})").config.bf16.enabled.value);
  EXPECT_THAT(error_of(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})"), HasSubstr("same section"));
  EXPECT_THAT(read(R"({"zero_optimization": {"gather_16bit_weights_on_model_save": true, "max_live_parameters": 1e9,
                       "max_reuse_distance": 1e9, "prefetch_bucket_size": 5e7, "param_persistence_threshold": 1e5,
                       "model_persistence_threshold": 9223372036854775807, "cpu_offload_param": false}})")
                  .warnings,
              IsEmpty());
}

TEST(DsConfig, auto_and_infinity_are_read_where_trainer_and_accelerate_write_them) {
  const Result result = read(R"({"steps_per_print": Infinity, "fp16": {"loss_scale": "auto"},
                                 "zero_optimization": {"allgather_bucket_size": "auto", "sub_group_size": "auto",
                                                       "offload_param": {"device": "auto"}}})");
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_EQ(result.config.steps_per_print.value, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(result.config.fp16.loss_scale.automatic());
  EXPECT_TRUE(result.config.zero_optimization.allgather_bucket_size.automatic());
}

TEST(DsConfig, what_is_off_is_never_refused) {
  EXPECT_THAT(read(R"({"eigenvalue": {"enabled": false, "max_iter": 7}, "hybrid_engine": {"enabled": false},
                       "compile": {"enabled": false, "backend": "inductor"}, "disable_allgather": false,
                       "quantize_training": {"enabled": false}, "sparse_attention": null, "autotuning":
                       {"enabled": false, "results_dir": "x"}, "tensor_parallel": {"autotp_size": 1},
                       "activation_checkpointing": {"partition_activations": false}})")
                  .warnings,
              IsEmpty());
  EXPECT_THAT(error_of(R"({"sparse_attention": {"mode": "fixed"}})"), HasSubstr("attention is dense"));
  EXPECT_THAT(read(R"({"activation_checkpointing": {"profile": true}})").warnings,
              ElementsAre(HasSubstr("not timed separately")));
}

TEST(DsConfig, unknown_keys_are_errors_with_the_nearest_name_at_every_level) {
  EXPECT_EQ(error_of(R"({"zero_optimisation": {}})"),
            "ds.json: zero_optimisation: unknown key (did you mean \"zero_optimization\"?)");
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stge": 2}})"),
            "ds.json: zero_optimization.stge: unknown key (did you mean \"stage\"?)");
  EXPECT_EQ(error_of(R"({"zero_optimization": {"offload_param": {"pin_memry": true}}})"),
            "ds.json: zero_optimization.offload_param.pin_memry: unknown key (did you mean \"pin_memory\"?)");
  EXPECT_EQ(error_of(R"({"optimizer": {"type": "AdamW", "params": {"wieght_decay": 0}}})"),
            "ds.json: optimizer.params.wieght_decay: unknown key (did you mean \"weight_decay\"?)");
  EXPECT_EQ(error_of(R"({"flops_profiler": {"enabeld": false}})"),
            "ds.json: flops_profiler.enabeld: unknown key (did you mean \"enabled\"?)");
}

TEST(DsConfig, wrong_types_say_what_was_found_and_expected) {
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stage": "two"}})"),
            "ds.json: zero_optimization.stage: expected an integer, found the string \"two\"");
  EXPECT_EQ(error_of(R"({"zero_optimization": true})"), "ds.json: zero_optimization: expected an object, found true");
  EXPECT_EQ(error_of(R"({"train_batch_size": "big"})"),
            "ds.json: train_batch_size: expected an integer or \"auto\", found the string \"big\"");
  EXPECT_EQ(error_of(R"({"zero_optimization": {"contiguous_gradients": "yes"}})"),
            "ds.json: zero_optimization.contiguous_gradients: expected a value like true, found the string \"yes\"");
  EXPECT_EQ(error_of("[]"), "ds.json: expected an object, found the list []");
}

TEST(DsConfig, optimizers_and_schedulers_are_implemented_refused_by_name_or_unknown) {
  EXPECT_EQ(read(R"({"optimizer": {"type": "adamw"}})").config.optimizer.type.value, "AdamW");
  EXPECT_EQ(read(R"({"optimizer": {"type": "onebitadam", "params": {"freeze_step": 10}}})").config.optimizer.type.value,
            "OneBitAdam");
  EXPECT_EQ(error_of(R"({"optimizer": {"type": "AdmaW"}})"),
            "ds.json: optimizer.type: unknown type \"AdmaW\" (did you mean \"AdamW\"?); use AdamW or Adam or Adagrad "
            "or Lamb or Lion or Muon or SGD or OneBitAdam or OneBitLamb or ZeroOneAdam");
  EXPECT_EQ(error_of(R"({"optimizer": {"params": {"lr": 1}}})"),
            "ds.json: optimizer: expected a \"type\", one of AdamW, Adam, Adagrad, Lamb, Lion, Muon, SGD, "
            "OneBitAdam, OneBitLamb, ZeroOneAdam");
  EXPECT_THAT(error_of(R"({"scheduler": {"type": "OneCycl"}})"), HasSubstr("did you mean \"OneCycle\""));
}

TEST(DsConfig, both_spellings_of_names_and_defaults_that_differ_in_docs_and_code_are_accepted) {
  EXPECT_THAT(read(R"({"aio": {"thread_count": 1, "intra_op_parallelism": 1},
                       "elasticity": {"prefer_large_batch": true, "prefer_larger_batch": true},
                       "zero_optimization": {"stage3_prefetch_bucket_size": 5e8}})")
                  .warnings,
              IsEmpty());
}

TEST(DsConfig, a_section_is_refused_only_when_something_in_it_is_enabled) {
  EXPECT_THAT(read(R"({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": false},
                       "different_groups": {}}}, "data_efficiency": {"enabled": false, "seed": 7},
                       "elasticity": {"enabled": false, "max_train_batch_size": 4000}})")
                  .warnings,
              IsEmpty());
  EXPECT_THAT(error_of(R"({"compression_training": {"layer_reduction": {"enabled": true}}})"),
              HasSubstr("compression_training.layer_reduction.enabled: not supported"));
  EXPECT_THAT(error_of(R"({"compression_training": {"row_pruning": {"shared_parameters": {"enabled": true}}}})"),
              HasSubstr("compression_training.row_pruning.shared_parameters: not supported"));
  EXPECT_THAT(error_of(R"({"data_efficiency": {"data_routing": {"random_ltd": {"enabled": true}}}})"),
              HasSubstr("data_efficiency.data_routing: not supported"));
  EXPECT_THAT(error_of(R"({"elasticity": {"prefer_large_batch": false}})"), HasSubstr("write prefer_larger_batch"));
}

TEST(DsConfig, null_counts_as_not_given) {
  const Result result = read(R"({"communication_data_type": null, "steps_per_print": null, "optimizer": null,
    "zero_optimization": {"overlap_comm": null}, "activation_checkpointing": {"number_checkpoints": null}})");
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_FALSE(result.config.steps_per_print.given);
  EXPECT_FALSE(result.config.zero_optimization.overlap_comm.given());
}

TEST(DsConfig, json_to_struct_to_json_gives_back_the_implemented_keys) {
  const Json json = parse_json(R"({"train_batch_size": "auto", "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.95], "eps": "auto", "adam_w_mode": false}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5, "warmup_type": "linear",
    "total_num_steps": "auto"}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "overlap_comm": false},
    "gradient_clipping": 0.5, "seed": 7, "steps_per_print": 10})",
                               "ds.json");
  EXPECT_EQ(to_json(read(json.dump()).config), json);
}

}  // namespace
}  // namespace nought::ds_config_test
