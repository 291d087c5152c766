#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_test {
namespace {

using test::adam_of;
using test::error_of;
using test::kExampleRun;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Resolve, the_example_run_becomes_plain_numbers_with_their_reasons) {
  const RunPlan plan = plan_of(kExampleRun, 2);
  require_trainable(plan);
  EXPECT_EQ(plan.model_config["hidden_size"], 256);
  EXPECT_EQ(plan.model_dir, "");
  ASSERT_EQ(plan.data.sources.size(), 1u);
  EXPECT_THAT(plan.data.sources[0].files, ElementsAre("/usr/include/c++/**"));
  EXPECT_EQ(plan.layout.seq_length, 256);
  EXPECT_EQ(plan.layout.micro_batch, 4);
  EXPECT_EQ(plan.layout.accumulation, 2);
  EXPECT_EQ(plan.layout.train_batch(), 16);
  EXPECT_EQ(plan.layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan.layout.zero_stage, 2);
  EXPECT_TRUE(plan.layout.sharding.overlap);  // the default at every stage
  EXPECT_EQ(plan.schedule.type, ScheduleType::cosine);
  EXPECT_EQ(plan.schedule.peak_lr, 1e-3);
  EXPECT_EQ(plan.schedule.warmup_steps, 5);
  EXPECT_EQ(plan.schedule.total_steps, 30);
  EXPECT_EQ(plan.max_steps, 30);
  EXPECT_EQ(plan.gradient_clipping, 1.0);
  EXPECT_TRUE(adam_of(plan).decoupled_decay);
  EXPECT_EQ(plan.seed, 1u);
  EXPECT_EQ(plan.save_total_limit, 0);
  EXPECT_EQ(reason_of(plan, "micro_batch"), "deepspeed: auto <- training.per_device_train_batch_size");
  EXPECT_EQ(reason_of(plan, "accumulation"), "training.gradient_accumulation_steps");
  EXPECT_EQ(reason_of(plan, "zero_stage"), "deepspeed.zero_optimization.stage");
  EXPECT_EQ(reason_of(plan, "weight_decay"), "default of training.weight_decay");
  EXPECT_THAT(plan.warnings, IsEmpty());
}

// As people copy them from the documentation of the Hugging Face Trainer: "auto" wherever it may stand.
constexpr const char* kZero2 = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "pin_memory": true},
    "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true,
    "reduce_bucket_size": "auto", "contiguous_gradients": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})";

constexpr const char* kZero3 = R"({
  "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "auto_cast": false},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "none"}, "overlap_comm": true,
    "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", "zero_allow_untested_optimizer": true})";

std::string run_with(std::string_view training, std::string_view deepspeed) {
  return fmt::format(R"({{"model": {{"hidden_size": 64}}, "training": {}, "deepspeed": {}}})", training, deepspeed);
}

TEST(Resolve, a_typical_zero2_file_with_auto_everywhere_is_filled_from_the_training_arguments) {
  const RunPlan plan = plan_of(run_with(R"({"max_steps": 100, "per_device_train_batch_size": 2, "learning_rate": 2e-4,
    "gradient_accumulation_steps": 4, "weight_decay": 0.1, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "warmup_ratio":
    0.25, "max_grad_norm": 0.5, "bf16": true, "logging_steps": 5})",
                                        kZero2),
                               8);
  EXPECT_EQ(plan.layout.train_batch(), 64);
  EXPECT_EQ(plan.layout.zero_stage, 2);
  EXPECT_TRUE(plan.layout.sharding.overlap);
  EXPECT_EQ(plan.layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_lr);
  EXPECT_EQ(plan.schedule.min_lr, 0.0);
  EXPECT_EQ(plan.schedule.peak_lr, 2e-4);
  EXPECT_EQ(plan.schedule.warmup_steps, 25);
  EXPECT_EQ(adam_of(plan).beta1, 0.9);
  EXPECT_EQ(adam_of(plan).beta2, 0.95);
  EXPECT_EQ(adam_of(plan).eps, 1e-6);
  EXPECT_EQ(plan.layout.sharding.optimizer.weight_decay, 0.1);
  EXPECT_EQ(plan.gradient_clipping, 0.5);
  EXPECT_EQ(plan.logging_steps, 5);
  EXPECT_EQ(value_of(plan, "reduce_bucket_size"), "4096");
  EXPECT_EQ(reason_of(plan, "train_batch"), "deepspeed: auto <- micro_batch x accumulation x world_size");
  EXPECT_EQ(reason_of(plan, "schedule.warmup_steps"), "deepspeed: auto <- training.warmup_ratio x max_steps");
  EXPECT_EQ(plan.layout.sharding.reduce_bucket, 4096);
  EXPECT_EQ(plan.layout.sharding.gather_bucket, 200'000'000);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("steps_per_print = 2000 has no effect")));
}

TEST(Resolve, a_typical_zero3_file_with_auto_everywhere_is_filled_from_the_training_arguments) {
  const RunPlan plan = plan_of(run_with(R"({"max_steps": 100, "warmup_steps": 10})", kZero3), 2);
  EXPECT_EQ(plan.layout.zero_stage, 3);
  EXPECT_EQ(plan.layout.train_batch(), 16);
  EXPECT_EQ(plan.layout.sharding.dtype, DType::f32);
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_decay_lr);
  EXPECT_EQ(plan.schedule.total_steps, 100);
  EXPECT_EQ(plan.schedule.warmup_steps, 10);
  EXPECT_EQ(plan.schedule.peak_lr, 5e-5);
  EXPECT_EQ(value_of(plan, "stage3_prefetch_bucket_size"), "3686");
  EXPECT_EQ(value_of(plan, "stage3_param_persistence_threshold"), "640");
  EXPECT_THAT(reason_of(plan, "learning_rate"), HasSubstr("auto <- default of training.learning_rate"));
}

TEST(Resolve, what_is_automatic_or_infinite_in_deepspeeds_file_is_explained) {
  const RunPlan plan = plan_of(run_with(R"({"max_steps": 100})", R"({"steps_per_print": Infinity,
      "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "auto"}, "offload_param": {"device": "none"}}})"));
  EXPECT_EQ(value_of(plan, "logging_steps"), "never");
  EXPECT_EQ(value_of(plan, "offload_optimizer.device"), "none");
  EXPECT_EQ(reason_of(plan, "offload_optimizer.device"), "deepspeed: auto; all of it already lives in host memory");
  const auto is_param = [](const Resolved& row) { return row.key == "offload_param.device"; };
  EXPECT_TRUE(std::none_of(plan.resolved.begin(), plan.resolved.end(), is_param)) << "nothing was left open";
}

TEST(Resolve, without_any_file_hugging_faces_defaults_count) {
  const RunPlan plan = plan_of("{}");
  EXPECT_EQ(plan.layout.micro_batch, 8);
  EXPECT_EQ(plan.layout.accumulation, 1);
  EXPECT_EQ(plan.schedule.peak_lr, 5e-5);
  EXPECT_EQ(plan.schedule.type, ScheduleType::linear);
  EXPECT_EQ(plan.max_steps, 0);
  EXPECT_EQ(plan.num_epochs, 3.0);
  EXPECT_EQ(plan.layout.zero_stage, 0);
  EXPECT_EQ(plan.seed, 42u);
  EXPECT_EQ(plan.logging_steps, 10);
  EXPECT_EQ(plan.save_steps, 500);
  EXPECT_EQ(plan.output_dir, "out");
}

TEST(Resolve, deepspeeds_defaults_count_for_an_optimizer_named_there) {
  const RunPlan plan = plan_of(R"({"deepspeed": {"optimizer": {"type": "Adam"}}})");
  EXPECT_EQ(plan.schedule.peak_lr, 1e-3);
  EXPECT_EQ(reason_of(plan, "learning_rate"), "DeepSpeed's default of optimizer.params.lr");
  EXPECT_TRUE(adam_of(plan).decoupled_decay);
}

TEST(Resolve, adam_decays_through_the_gradient_only_when_adam_w_mode_is_off) {
  const char* text = R"({"deepspeed": {"optimizer": {"type": "%", "params": {"adam_w_mode": false}}}})";
  const auto with = [&](const std::string& type) {
    return std::string(text).replace(std::string(text).find('%'), 1, type);
  };
  EXPECT_FALSE(adam_of(plan_of(with("Adam"))).decoupled_decay);
  EXPECT_TRUE(adam_of(plan_of(with("AdamW"))).decoupled_decay);
  EXPECT_THAT(error_of(with("Adam"), 1, {"training.optim=adamw_torch"}), HasSubstr("contradicts --set training.optim"));
}

TEST(Resolve, an_override_is_named_as_the_reason) {
  const RunPlan plan = plan_of(kExampleRun, 1, {"training.max_steps=5", "deepspeed.zero_optimization.stage=3"});
  EXPECT_EQ(plan.max_steps, 5);
  EXPECT_EQ(plan.layout.zero_stage, 3);
  EXPECT_TRUE(plan.layout.sharding.overlap);
  EXPECT_EQ(reason_of(plan, "max_steps"), "--set training.max_steps");
  EXPECT_EQ(reason_of(plan, "zero_stage"), "--set deepspeed.zero_optimization.stage");
}

// The batch identity.

TEST(Resolve, any_two_of_the_batch_sizes_give_the_third) {
  const auto batch = [](const char* deepspeed, int world) {
    const RunPlan plan = plan_of(fmt::format(R"({{"deepspeed": {}}})", deepspeed), world);
    return std::vector<int64_t>{plan.layout.train_batch(), plan.layout.micro_batch, plan.layout.accumulation};
  };
  EXPECT_THAT(batch(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})", 4), ElementsAre(32, 4, 2));
  EXPECT_THAT(batch(R"({"train_batch_size": 32, "gradient_accumulation_steps": 4})", 4), ElementsAre(32, 2, 4));
  EXPECT_THAT(batch(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})", 4),
              ElementsAre(32, 4, 2));
  EXPECT_THAT(batch(R"({"train_batch_size": 32})", 4), ElementsAre(32, 8, 1));
  EXPECT_THAT(batch(R"({"train_micro_batch_size_per_gpu": 3})", 4), ElementsAre(12, 3, 1));
}

TEST(Resolve, an_impossible_batch_is_an_error_with_its_numbers) {
  EXPECT_EQ(error_of(R"({"deepspeed": {"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4,
                         "gradient_accumulation_steps": 2}})",
                     4),
            "RUN.json: deepspeed.train_batch_size: train_batch_size 30 != train_micro_batch_size_per_gpu 4 x "
            "gradient_accumulation_steps 2 x world size 4 = 32; leave one of the three out, and it follows from the "
            "others");
  EXPECT_EQ(error_of(R"({"deepspeed": {"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}})", 4),
            "RUN.json: deepspeed.train_batch_size: train_batch_size 30 is not divisible by "
            "train_micro_batch_size_per_gpu 4 x world size 4 = 16; the nearest that are: 16 and 32");
  EXPECT_THAT(
      error_of(R"({"deepspeed": {"train_batch_size": 3}})", 4),
      HasSubstr("3 is not divisible by gradient_accumulation_steps 1 x world size 4 = 4; the nearest that is: 4"));
  EXPECT_THAT(error_of(R"({"training": {"per_device_train_batch_size": 4}, "deepspeed": {"train_batch_size": 6,
                         "gradient_accumulation_steps": "auto"}})"),
              HasSubstr("train_batch_size 6 != train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 1"));
}

TEST(Resolve, accumulation_alone_does_not_give_the_batch) {
  EXPECT_THAT(error_of(R"({"deepspeed": {"gradient_accumulation_steps": 2}})"),
              HasSubstr("deepspeed.gradient_accumulation_steps: alone it does not give the batch"));
}

TEST(Resolve, a_run_needs_at_least_one_rank) {
  EXPECT_THAT(error_of("{}", 0), HasSubstr("world size: expected 1 to 1000000 ranks, got 0"));
}

// Contradictions name both places and both values.

TEST(Resolve, a_deepspeed_value_that_differs_from_a_given_training_argument_is_an_error) {
  EXPECT_EQ(error_of(R"({"training": {"learning_rate": 0.001},
                         "deepspeed": {"optimizer": {"type": "AdamW", "params": {"lr": 0.0005}}}})"),
            "RUN.json: deepspeed.optimizer.params.lr = 0.0005 contradicts RUN.json: training.learning_rate = 0.001; "
            "make them equal, remove one, or write \"auto\" for DeepSpeed's");
  const auto contradicts = [](const char* training, const char* deepspeed) {
    return error_of(fmt::format(R"({{"training": {}, "deepspeed": {}}})", training, deepspeed));
  };
  EXPECT_THAT(contradicts(R"({"max_grad_norm": 1})", R"({"gradient_clipping": 2})"),
              HasSubstr("gradient_clipping = 2 contradicts RUN.json: training.max_grad_norm = 1;"));
  EXPECT_THAT(contradicts(R"({"bf16": false})", R"({"bf16": {"enabled": true}})"), HasSubstr("contradicts"));
  EXPECT_THAT(
      contradicts(R"({"adam_beta2": 0.95})", R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.999]}}})"),
      HasSubstr("optimizer.params.betas = 0.999 contradicts RUN.json: training.adam_beta2 = 0.95;"));
  EXPECT_THAT(contradicts(R"({"gradient_accumulation_steps": 2})", R"({"gradient_accumulation_steps": 4})"),
              HasSubstr("= 4 contradicts RUN.json: training.gradient_accumulation_steps = 2;"));
  EXPECT_THAT(contradicts(R"({"max_steps": 10})",
                          R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 20}}})"),
              HasSubstr("scheduler.params.total_num_steps = 20 contradicts RUN.json: training.max_steps = 10;"));
  EXPECT_THAT(contradicts(R"({"lr_scheduler_type": "cosine"})", R"({"scheduler": {"type": "WarmupLR"}})"),
              HasSubstr("WarmupLR contradicts RUN.json: training.lr_scheduler_type = cosine"));
  EXPECT_THAT(contradicts(R"({"seed": 1})", R"({"seed": 2})"), HasSubstr("seed = 2 contradicts"));
}

TEST(Resolve, equal_values_in_both_places_and_defaults_that_differ_are_no_contradiction) {
  EXPECT_EQ(plan_of(R"({"training": {"max_grad_norm": 2}, "deepspeed": {"gradient_clipping": 2}})").gradient_clipping,
            2);
  EXPECT_EQ(plan_of(R"({"deepspeed": {"gradient_clipping": 2, "bf16": {"enabled": true}}})").layout.sharding.dtype,
            DType::bf16);
}

TEST(Resolve, a_deepspeed_schedule_by_epochs_is_filled_the_same_way) {
  const RunPlan plan =
      with_steps_per_epoch(plan_of(run_with(R"({"num_train_epochs": 1, "warmup_ratio": 0.5})", kZero3)), 20);
  EXPECT_EQ(plan.schedule.total_steps, 20);
  EXPECT_EQ(plan.schedule.warmup_steps, 10);
}

TEST(Resolve, buckets_are_deepspeeds_numbers) {
  const auto with = [](int stage, std::string_view keys) {
    return plan_of(
        fmt::format(R"({{"model": {{"hidden_size": 64}}, "deepspeed": {{"zero_optimization": {{"stage": {}{}}}}}}})",
                    stage, keys),
        2);
  };
  EXPECT_EQ(with(2, "").layout.sharding.reduce_bucket, 0);
  const RunPlan two = with(2, R"(, "reduce_bucket_size": 5e8, "allgather_bucket_size": 3e8)");
  EXPECT_EQ(two.layout.sharding.reduce_bucket, 500'000'000);
  EXPECT_EQ(two.layout.sharding.gather_bucket, 300'000'000);
  EXPECT_EQ(reason_of(two, "reduce_bucket_size"), "deepspeed: zero_optimization.reduce_bucket_size");
  const RunPlan three = with(3, R"(, "reduce_bucket_size": "auto", "allgather_bucket_size": 3e8)");
  EXPECT_EQ(three.layout.sharding.reduce_bucket, 64 * 64);
  EXPECT_EQ(three.layout.sharding.gather_bucket, 0);
  EXPECT_THAT(three.warnings, ElementsAre(HasSubstr("allgather_bucket_size has no effect at stage 3")));
  EXPECT_THROW(with(2, R"(, "reduce_bucket_size": -1)"), ConfigError);
}

// Ranges.

TEST(Resolve, a_value_out_of_range_is_an_error_that_names_its_place) {
  const auto with = [](const char* setting) { return error_of("{}", 1, {setting}); };
  EXPECT_EQ(with("training.per_device_train_batch_size=0"),
            "--set training.per_device_train_batch_size: expected 1 to 1000000, got 0");
  EXPECT_THAT(with("training.gradient_accumulation_steps=-1"), HasSubstr("expected 1 to"));
  EXPECT_THAT(with("training.learning_rate=-1"), HasSubstr("expected a finite number >= 0, got -1"));
  EXPECT_THAT(with("training.adam_beta1=1"), HasSubstr("expected a number in [0, 1), got 1"));
  EXPECT_THAT(with("training.adam_epsilon=0"), HasSubstr("expected a finite number > 0, got 0"));
  EXPECT_THAT(with("training.weight_decay=-0.1"), HasSubstr(">= 0, got -0.1"));
  EXPECT_THAT(with("training.max_grad_norm=-1"), HasSubstr(">= 0, got -1"));
  EXPECT_THAT(with("training.max_steps=-2"), HasSubstr("expected at least -1, got -2"));
  EXPECT_THAT(with("training.num_train_epochs=0"), HasSubstr("> 0, got 0"));
  EXPECT_THAT(with("training.warmup_steps=-1"), HasSubstr("expected at least 0, got -1"));
  EXPECT_THAT(with("training.warmup_ratio=1.5"), HasSubstr("in [0, 1], got 1.5"));
  EXPECT_THAT(with("training.logging_steps=0"), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(with("training.save_steps=-1"), HasSubstr("expected at least 0, got -1"));
  EXPECT_THAT(with("training.seed=-1"), HasSubstr("expected at least 0, got -1"));
  EXPECT_THAT(with("training.output_dir="), HasSubstr("--set training.output_dir: expected a folder's path"));
  EXPECT_THAT(with("data.seq_length=0"), HasSubstr("--set data.seq_length: expected 1 to"));
  EXPECT_THAT(with("data.validation_fraction=1"), HasSubstr("in [0, 1), got 1"));
  EXPECT_THAT(with("deepspeed.zero_optimization.stage=4"), HasSubstr("expected 0, 1, 2 or 3, got 4"));
  EXPECT_THAT(with("deepspeed.train_batch_size=0"), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}})"),
              HasSubstr("optimizer.params.betas: expected two numbers, found 1"));
}

TEST(Resolve, a_profile_is_asked_for_in_deepspeeds_words) {
  const auto with = [](const std::string& keys) {
    return fmt::format(R"({{"deepspeed": {{"flops_profiler": {{{}}}}}}})", keys);
  };
  EXPECT_FALSE(plan_of(with(R"("enabled": false, "profile_step": 7)")).profile);
  const ProfileOptions defaults = plan_of(with(R"("enabled": true)")).profile.value();
  EXPECT_EQ(defaults.step, 1);
  EXPECT_EQ(defaults.module_depth, -1);
  EXPECT_EQ(defaults.top_modules, 1);
  EXPECT_TRUE(defaults.detailed && defaults.output_file.empty() && defaults.recompute_factor == 0);
  const RunPlan plan = plan_of(with(R"("enabled": true, "profile_step": 7, "module_depth": 2, "top_modules": 3,
                                       "detailed": false, "output_file": "a.txt", "recompute_fwd_factor": 1)"));
  const ProfileOptions& given = plan.profile.value();
  EXPECT_EQ(given.step, 7);
  EXPECT_EQ(given.module_depth, 2);
  EXPECT_EQ(given.top_modules, 3);
  EXPECT_FALSE(given.detailed);
  EXPECT_EQ(given.output_file, "a.txt");
  EXPECT_EQ(given.recompute_factor, 1);
  EXPECT_TRUE(plan.warnings.empty());
  const std::vector<std::pair<const char*, const char*>> bad{
      {R"("profile_step": 0)", "profile_step: expected at least 1, got 0"},
      {R"("module_depth": -2)", "module_depth: expected at least -1, got -2"},
      {R"("top_modules": 0)", "top_modules: expected at least 1, got 0"},
      {R"("recompute_fwd_factor": -1)", "recompute_fwd_factor: expected a finite number >= 0, got -1"},
      {R"("detailed": 1)", "detailed: expected true or false, found the number 1"},
      {R"("output_file": "")", "output_file: expected a file's path, or null to print the profile, found \"\""}};
  for (const auto& [key, message] : bad)
    EXPECT_EQ(error_of(with(fmt::format(R"("enabled": true, {})", key))),
              std::string("RUN.json: deepspeed.flops_profiler.") + message);
}

TEST(Resolve, what_only_training_needs_is_asked_for_by_require_trainable) {
  const auto missing = [](const char* text) -> std::string {
    try {
      require_trainable(plan_of(text));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "(no error)";
  };
  EXPECT_THAT(missing("{}"), HasSubstr("model is missing"));
  EXPECT_THAT(missing(R"({"model": "folder"})"), HasSubstr("data.files is empty"));
  EXPECT_THAT(missing(R"({"model": "folder", "data": {"files": ["a"]}})"), HasSubstr("data.seq_length is missing"));
  EXPECT_EQ(missing(R"({"model": {"max_position_embeddings": 32}, "data": {"files": ["a"]}})"), "(no error)");
}

// Schedules.

TEST(Explain, is_an_aligned_table_of_key_value_and_reason_and_then_the_warnings) {
  RunPlan plan;
  plan.resolved = {{"a", "1", "default"}, {"long_key", "0.001", "RUN"}};
  plan.warnings = {"mind the gap"};
  EXPECT_EQ(explain(plan), "a         1      default\nlong_key  0.001  RUN\nwarning: mind the gap\n");
}

TEST(Explain, a_long_value_pushes_its_own_reason_alone) {
  RunPlan plan;
  plan.resolved = {{"a", "a value of 22 columns.", "RUN"}, {"b", "1", "default"}};
  EXPECT_EQ(explain(plan), "a  a value of 22 columns.  RUN\nb  1               default\n");
}

}  // namespace
}  // namespace nought::resolve_test
