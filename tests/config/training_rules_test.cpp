#include "nought/config/training_rules.h"

#include <set>
#include <span>

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/ds_config.h"
#include "nought/config/run_config.h"

namespace nought::training_rules_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using testing::HasSubstr;
using testing::IsEmpty;

std::set<std::string> implemented() {
  std::set<std::string> names;
  for (const KeyInfo& key : list_keys<TrainingConfig>()) names.insert(key.path.substr(0, key.path.find_first_of(".[")));
  return names;
}

TEST(TrainingRules, every_field_of_TrainingArguments_is_implemented_or_has_a_rule_and_not_both) {
  const std::set<std::string> known = implemented();
  std::set<std::string_view> ruled;
  for (const KeyRule& rule : training_rules()) {
    EXPECT_TRUE(ruled.insert(rule.path).second) << rule.path << " has two rules";
    EXPECT_FALSE(known.contains(std::string(rule.path))) << rule.path << " is implemented: remove its rule";
    EXPECT_FALSE(rule.reason.empty()) << rule.path;
  }
  for (const auto& [alias, name] : training_aliases()) {
    EXPECT_TRUE(known.contains(std::string(name)) || ruled.contains(name)) << alias;
    EXPECT_TRUE(ruled.insert(alias).second) << alias << " has a rule of its own";
  }
  for (const std::string_view name : training_arguments())
    EXPECT_TRUE(known.contains(std::string(name)) || ruled.contains(name)) << name << " has no verdict";
  EXPECT_GT(training_arguments().size(), 100u);
}

TEST(TrainingRules, every_default_of_transformers_is_accepted_without_a_word) {
  Json training = Json::object();
  for (const KeyRule& rule : training_rules())
    training[std::string(rule.path)] = Json::parse(rule.defaults.substr(0, rule.defaults.find(" | ")));
  std::vector<std::string> warnings;
  apply_training_rules(training, Origins("RUN.json"), warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(training, Json::object());
}

TEST(TrainingRules, a_field_without_effect_is_accepted_with_a_note) {
  const RunPlan plan = plan_of(R"({"training": {"report_to": ["wandb"], "run_name": "mine", "dataloader_num_workers": 4,
      "save_strategy": "epoch", "tf32": true, "data_seed": 7, "logging_dir": "logs", "max_steps": 5}})");
  EXPECT_EQ(plan.max_steps, 5);
  EXPECT_EQ(plan.warnings.size(), 4u);
  EXPECT_THAT(plan.warnings, testing::Contains("RUN.json: training.tf32 = true has no effect: CPUs have no TF32"));
  EXPECT_THAT(plan.warnings, testing::Contains(HasSubstr("training.data_seed = 7 has no effect: training.seed")));
}

TEST(TrainingRules, a_field_that_would_change_the_result_is_refused_all_at_once) {
  EXPECT_EQ(
      error_of(R"({"training": {"label_smoothing_factor": 0.1, "fsdp": "full_shard"}})"),
      "RUN.json: training.label_smoothing_factor = 0.1 is not supported: label smoothing is not available; only 0 "
      "is accepted; RUN.json: training.fsdp = \"full_shard\" is not supported: write "
      "deepspeed.zero_optimization.stage: 3 is full_shard, 2 is shard_grad_op; only null | \"\" | [] | false is "
      "accepted");
  EXPECT_THAT(error_of("{}", 1, {"training.deepspeed=ds.json"}),
              HasSubstr("--set training.deepspeed = \"ds.json\" is not supported: write it beside \"training\""));
}

TEST(TrainingRules, a_field_with_another_name_is_read_under_it) {
  EXPECT_EQ(plan_of(R"({"training": {"activation_checkpointing": true}})").layout.recompute.mode, Recompute::full);
  EXPECT_EQ(
      plan_of(R"({"data": {"validation_fraction": 0.1}, "training": {"evaluation_strategy": "epoch"}})").eval_strategy,
      EvalStrategy::epoch);
  EXPECT_EQ(
      plan_of(R"({"training": {"per_gpu_train_batch_size": 3, "per_device_train_batch_size": 3}})").layout.micro_batch,
      3);
  EXPECT_EQ(
      error_of(R"({"training": {"activation_checkpointing": true, "gradient_checkpointing": false}})"),
      "RUN.json: training.activation_checkpointing = true contradicts RUN.json: training.gradient_checkpointing = "
      "false: leave one out");
}

/// What a script passes on as it is.
TEST(TrainingRules, what_TrainingArguments_writes_of_itself_is_accepted) {
  for (const char* version : {"4.57.6", "5.24.0"}) {
    SCOPED_TRACE(version);
    Json run = Json::object();
    run["training"] = read_json_file(test::golden_root() + "/trainer/" + version + ".json");
    EXPECT_GT(run["training"].size(), 100u);
    const RunPlan plan = resolve(make_run_config(run, "RUN.json"), 1);
    EXPECT_EQ(plan.max_steps, 2);
    const bool older = run["training"].contains("logging_dir");
    EXPECT_EQ(plan.warnings.size(), older ? 1u : 0u) << fmt::format("{}", fmt::join(plan.warnings, "\n"));
  }
}

TEST(TrainingRules, null_is_the_default_of_every_key) {
  const std::vector<Resolved> expected = plan_of("{}").resolved;
  std::set<std::string> paths;
  for (const KeyInfo& key : list_keys<RunConfig>()) {
    const std::string path = key.path.substr(0, key.path.find('['));
    for (size_t end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1))
      paths.insert(path.substr(0, end));
    paths.insert(path);
  }
  for (const std::string& path : paths) {
    Json run = Json::object();
    apply_override(run, {path, nullptr});
    EXPECT_EQ(error_of(run.dump()), "(no error)") << path;
  }
  for (const KeyRule& rule : training_rules()) {
    Json run = Json::object();
    run["training"][std::string(rule.path)] = nullptr;
    EXPECT_EQ(error_of(run.dump()), "(no error)") << rule.path;
  }
  EXPECT_EQ(plan_of(R"({"training": {"lr_scheduler_kwargs": null, "parallelism_config": null}})").resolved.size(),
            expected.size());
}

/// Every sentence of the tables holds where it is printed: none on a GPU speaks of the CPU's memory or lack of
/// anything.
TEST(TrainingRules, what_has_no_effect_is_said_for_the_device_that_computes) {
  const auto sentence = [](const KeyRule& rule) { return rule.on_gpu.empty() ? rule.reason : rule.on_gpu; };
  for (const std::span<const KeyRule> rules : {training_rules(), ds_key_rules()})
    for (const KeyRule& rule : rules)
      for (const char* cpu : {"CPU", "host memory", "the host", "MPI", "the only device"}) {
        if (rule.status != KeyStatus::no_effect || rule.path == "aio.use_gds") continue;  // true of both devices
        EXPECT_THAT(std::string(sentence(rule)), testing::Not(HasSubstr(cpu))) << rule.path;
      }
}

TEST(TrainingRules, a_run_for_the_cpu_is_refused_on_gpus) {
  const auto plan = [](const char* key, bool value, bool on_gpu) {
    Json run;
    run["training"][key] = value;
    return resolve(make_run_config(run, "RUN.json", {}, {}, on_gpu), 1);
  };
  for (const char* key : {"use_cpu", "no_cuda"}) {
    EXPECT_THAT(plan(key, true, /*on_gpu=*/false).warnings, IsEmpty());
    EXPECT_THAT(plan(key, false, /*on_gpu=*/true).warnings, IsEmpty());
    EXPECT_THAT(test::message_of<ConfigError>([&] { plan(key, true, /*on_gpu=*/true); }),
                HasSubstr(fmt::format("training.{} = true contradicts --device cuda", key)));
  }
  Json run;
  run["training"]["tf32"] = true;
  EXPECT_THAT(make_run_config(run, "RUN.json", {}, {}, /*on_gpu=*/true).warnings,
              testing::ElementsAre(HasSubstr("computed in fp32")));
}

TEST(TrainingRules, a_secret_is_not_printed) {
  const RunPlan plan = plan_of(R"({"training": {"hub_token": "hf_secret"}})");
  EXPECT_THAT(plan.warnings, testing::ElementsAre(HasSubstr("training.hub_token = \"...\" has no effect")));
}

TEST(TrainingRules, what_transformers_writes_otherwise_means_the_same) {
  const RunPlan ratio = plan_of(R"({"training": {"max_steps": 200, "warmup_steps": 0.1}})");
  EXPECT_EQ(ratio.schedule.warmup_steps, 20);
  EXPECT_EQ(reason_of(ratio, "schedule.warmup_steps"), "training.warmup_ratio x max_steps");
  EXPECT_EQ(plan_of(R"({"training": {"save_strategy": "no"}})").save_steps, 0);
  EXPECT_THAT(plan_of(R"({"training": {"save_strategy": "steps"}})").warnings, IsEmpty());
}

}  // namespace
}  // namespace nought::training_rules_test
