#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/run_config.h"
#include "nought/train/run_plan.h"

namespace nought {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunPlan plan_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  return resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json", overrides), world_size);
}

std::string error_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  try {
    plan_of(text, world_size, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

std::string reason_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.reason;
  return "(no such row)";
}

std::string value_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.value;
  return "(no such row)";
}

AdamOptions adam_of(const RunPlan& plan) { return std::get<AdamOptions>(plan.optimizer.method); }

constexpr const char* kIssueExample = R"({
  "model": {"model_type": "llama", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 704,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512},
  "data": {"files": ["/usr/include/c++/**"], "tokenizer": "bytes", "seq_length": 256},
  "training": {"max_steps": 30, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
               "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 5, "bf16": true, "seed": 1,
               "logging_steps": 1, "save_steps": 10, "output_dir": "out"},
  "deepspeed": {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}})";

TEST(Resolve, the_example_run_becomes_plain_numbers_with_their_reasons) {
  const RunPlan plan = plan_of(kIssueExample, 2);
  require_trainable(plan);
  EXPECT_EQ(plan.model_config["hidden_size"], 256);
  EXPECT_EQ(plan.model_dir, "");
  ASSERT_EQ(plan.data.sources.size(), 1u);
  EXPECT_THAT(plan.data.sources[0].files, ElementsAre("/usr/include/c++/**"));
  EXPECT_EQ(plan.data.seq_length, 256);
  EXPECT_EQ(plan.micro_batch, 4);
  EXPECT_EQ(plan.accumulation, 2);
  EXPECT_EQ(plan.train_batch, 16);
  EXPECT_EQ(plan.dtype, DType::bf16);
  EXPECT_EQ(plan.zero_stage, 2);
  EXPECT_TRUE(plan.overlap_comm);  // the default at every stage
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
  EXPECT_EQ(plan.train_batch, 64);
  EXPECT_EQ(plan.zero_stage, 2);
  EXPECT_TRUE(plan.overlap_comm);
  EXPECT_EQ(plan.dtype, DType::bf16);
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_lr);
  EXPECT_EQ(plan.schedule.min_lr, 0.0);
  EXPECT_EQ(plan.schedule.peak_lr, 2e-4);
  EXPECT_EQ(plan.schedule.warmup_steps, 25);
  EXPECT_EQ(adam_of(plan).beta1, 0.9);
  EXPECT_EQ(adam_of(plan).beta2, 0.95);
  EXPECT_EQ(adam_of(plan).eps, 1e-6);
  EXPECT_EQ(plan.optimizer.weight_decay, 0.1);
  EXPECT_EQ(plan.gradient_clipping, 0.5);
  EXPECT_EQ(plan.logging_steps, 5);
  EXPECT_EQ(value_of(plan, "reduce_bucket_size"), "4096");
  EXPECT_EQ(reason_of(plan, "train_batch"), "deepspeed: auto <- micro_batch x accumulation x world_size");
  EXPECT_EQ(reason_of(plan, "schedule.warmup_steps"), "deepspeed: auto <- training.warmup_ratio x max_steps");
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("allgather_bucket_size = 200000000.0 has no effect")));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("steps_per_print = 2000 has no effect")));
}

TEST(Resolve, a_typical_zero3_file_with_auto_everywhere_is_filled_from_the_training_arguments) {
  const RunPlan plan = plan_of(run_with(R"({"max_steps": 100, "warmup_steps": 10})", kZero3), 2);
  EXPECT_EQ(plan.zero_stage, 3);
  EXPECT_EQ(plan.train_batch, 16);
  EXPECT_EQ(plan.dtype, DType::f32);
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_decay_lr);
  EXPECT_EQ(plan.schedule.total_steps, 100);
  EXPECT_EQ(plan.schedule.warmup_steps, 10);
  EXPECT_EQ(plan.schedule.peak_lr, 5e-5);
  EXPECT_EQ(value_of(plan, "stage3_prefetch_bucket_size"), "3686");
  EXPECT_EQ(value_of(plan, "stage3_param_persistence_threshold"), "640");
  EXPECT_THAT(reason_of(plan, "learning_rate"), HasSubstr("auto <- default of training.learning_rate"));
}

TEST(Resolve, without_any_file_hugging_faces_defaults_count) {
  const RunPlan plan = plan_of("{}");
  EXPECT_EQ(plan.micro_batch, 8);
  EXPECT_EQ(plan.accumulation, 1);
  EXPECT_EQ(plan.schedule.peak_lr, 5e-5);
  EXPECT_EQ(plan.schedule.type, ScheduleType::linear);
  EXPECT_EQ(plan.max_steps, 0);
  EXPECT_EQ(plan.num_epochs, 3.0);
  EXPECT_EQ(plan.zero_stage, 0);
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
  const RunPlan plan = plan_of(kIssueExample, 1, {"training.max_steps=5", "deepspeed.zero_optimization.stage=3"});
  EXPECT_EQ(plan.max_steps, 5);
  EXPECT_EQ(plan.zero_stage, 3);
  EXPECT_TRUE(plan.overlap_comm);
  EXPECT_EQ(reason_of(plan, "max_steps"), "--set training.max_steps");
  EXPECT_EQ(reason_of(plan, "zero_stage"), "--set deepspeed.zero_optimization.stage");
}

// The batch identity.

TEST(Resolve, any_two_of_the_batch_sizes_give_the_third) {
  const auto batch = [](const char* deepspeed, int world) {
    const RunPlan plan = plan_of(fmt::format(R"({{"deepspeed": {}}})", deepspeed), world);
    return std::vector<int64_t>{plan.train_batch, plan.micro_batch, plan.accumulation};
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
            "gradient_accumulation_steps 2 x world size 4 = 32");
  EXPECT_EQ(error_of(R"({"deepspeed": {"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}})", 4),
            "RUN.json: deepspeed.train_batch_size: train_batch_size 30 is not divisible by "
            "train_micro_batch_size_per_gpu 4 x world size 4 = 16");
  EXPECT_THAT(error_of(R"({"deepspeed": {"train_batch_size": 3}})", 4), HasSubstr("3 is not divisible by"));
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
  EXPECT_EQ(plan_of(R"({"deepspeed": {"gradient_clipping": 2, "bf16": {"enabled": true}}})").dtype, DType::bf16);
}

TEST(Resolve, fp16_has_deepspeeds_loss_scale_and_excludes_bf16) {
  const RunPlan plan = plan_of(R"({"training": {"fp16": true}, "deepspeed": {"fp16": {"enabled": "auto"}}})");
  EXPECT_EQ(plan.dtype, DType::f16);
  EXPECT_EQ(plan.loss_scale, LossScaleOptions());
  const RunPlan other = plan_of(
      R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 8, "loss_scale_window": 50,
          "hysteresis": 1, "consecutive_hysteresis": true, "min_loss_scale": 0.5}}})");
  EXPECT_EQ(other.loss_scale,
            (LossScaleOptions{
                .initial_power = 8, .window = 50, .hysteresis = 1, .consecutive_hysteresis = true, .min_scale = 0.5}));
  EXPECT_EQ(plan_of(R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale": 128}}})").loss_scale->static_scale, 128);
  EXPECT_EQ(plan_of(R"({"deepspeed": {"fp16": {"enabled": false, "loss_scale": 128}}})").loss_scale, std::nullopt);
  EXPECT_THAT(error_of(R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale_window": 0}}})"),
              HasSubstr("fp16.loss_scale_window: expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"training": {"fp16": true, "bf16": true}})"), HasSubstr("are both true"));
}

TEST(Resolve, gradients_have_dtypes_and_divisors_of_their_own) {
  const RunPlan plain = plan_of(R"({"training": {"bf16": true}})", 4);
  EXPECT_EQ(plain.gradient_dtype, DType::bf16);
  EXPECT_EQ(plain.wire_dtype, DType::bf16);
  EXPECT_EQ(plain.gradient_factor, 1);
  const RunPlan chosen =
      plan_of(R"({"training": {"bf16": true}, "deepspeed": {"data_types": {"grad_accum_dtype": "fp32"},
      "communication_data_type": "bfloat16", "prescale_gradients": false, "gradient_predivide_factor": 2}})",
              4);
  EXPECT_EQ(chosen.gradient_dtype, DType::f32);
  EXPECT_EQ(chosen.wire_dtype, DType::bf16);
  EXPECT_EQ(chosen.gradient_factor, 2);
  EXPECT_EQ(
      plan_of(R"({"deepspeed": {"prescale_gradients": true, "gradient_predivide_factor": 2}})", 4).gradient_factor, 1);
  EXPECT_THAT(error_of(R"({"training": {"bf16": true}, "deepspeed": {"data_types": {"grad_accum_dtype": "fp16"}}})"),
              HasSubstr("gradients accumulate in fp32 or in the dtype of computation, which is bf16"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"communication_data_type": "int8"}})"), HasSubstr("expected one of fp32"));
}

TEST(Resolve, weights_without_masters_are_deepspeeds_keys_and_must_agree_with_the_others) {
  const RunPlan plan = plan_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                                                          "bf16_optimizer_states": true}}})");
  EXPECT_FALSE(plan.optimizer.master_weights);
  EXPECT_EQ(plan.optimizer.state_dtype, DType::bf16);
  EXPECT_TRUE(plan.optimizer.stochastic_rounding);
  EXPECT_EQ(plan.optimizer.seed, plan.seed);
  EXPECT_EQ(value_of(plan, "master_weights"), "none: bf16");
  EXPECT_THAT(error_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_optimizer_states": true}}})"),
              HasSubstr("bf16_optimizer_states = true needs bf16.bf16_master_weights_and_grads = true"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
                                         "data_types": {"grad_accum_dtype": "fp32"}}})"),
              HasSubstr("contradicts data_types.grad_accum_dtype"));
  const RunPlan unused = plan_of(R"({"deepspeed": {"bf16": {"bf16_master_weights_and_grads": true}}})");
  EXPECT_TRUE(unused.optimizer.master_weights);
  EXPECT_THAT(unused.warnings, Contains(HasSubstr("bf16_master_weights_and_grads has no effect: the run is in f32")));
}

TEST(Resolve, fp8_needs_bf16) {
  const RunPlan plan = plan_of(R"({"training": {"bf16": true, "fp8": "delayed", "fp8_amax_history": 8}})");
  EXPECT_EQ(plan.fp8.scaling, Fp8Scaling::delayed);
  EXPECT_EQ(plan.fp8.history, 8);
  EXPECT_THAT(error_of(R"({"training": {"fp8": "current"}})"), HasSubstr("write training.bf16 = true"));
  EXPECT_THAT(error_of(R"({"training": {"fp8": "now"}})"), HasSubstr("delayed"));
}

TEST(Resolve, checkpoints_are_those_of_deepspeed_where_recompute_is_full) {
  const char* section =
      R"("deepspeed": {"activation_checkpointing": {"number_checkpoints": 4, "cpu_checkpointing": true,
                       "contiguous_memory_optimization": true}}})";
  const RunPlan full = plan_of(R"({"training": {"recompute": "full"}, )" + std::string(section));
  EXPECT_EQ(full.recompute.checkpoints, 4);
  EXPECT_EQ(full.recompute.pool, Pool::host);
  EXPECT_TRUE(full.recompute.contiguous);
  const RunPlan none = plan_of("{" + std::string(section));
  EXPECT_EQ(none.recompute, RecomputeOptions());
  EXPECT_EQ(none.warnings.size(), 3u);
  EXPECT_NE(none.warnings[0].find("number_checkpoints has no effect: recompute is none"), std::string::npos);
}

TEST(Resolve, recompute_has_two_names_that_must_agree) {
  EXPECT_EQ(plan_of(R"({"training": {"gradient_checkpointing": true}})").recompute.mode, Recompute::full);
  EXPECT_EQ(plan_of(R"({"training": {"recompute": "selective"}})").recompute.mode, Recompute::selective);
  EXPECT_EQ(plan_of(R"({"training": {"recompute": "full", "gradient_checkpointing": true}})").recompute.mode,
            Recompute::full);
  EXPECT_EQ(
      error_of(R"({"training": {"recompute": "selective", "gradient_checkpointing": true}})"),
      "RUN.json: training.gradient_checkpointing = true contradicts RUN.json: training.recompute = \"selective\": "
      "give one of them");
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

TEST(Resolve, a_deepspeed_schedule_takes_its_parameters_and_their_defaults) {
  const RunPlan plan = plan_of(R"({"training": {"max_steps": 5000, "learning_rate": 0.01}, "deepspeed": {"scheduler":
    {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "warmup_type": "linear"}}}})");
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_cosine_lr);
  EXPECT_EQ(plan.schedule.warmup_min_ratio, 0.1);
  EXPECT_EQ(plan.schedule.cos_min_ratio, 1e-4);
  EXPECT_EQ(plan.schedule.warmup_shape, WarmupShape::linear);
  EXPECT_EQ(plan.schedule.warmup_steps, 1000);
  EXPECT_EQ(plan.schedule.total_steps, 5000);
  EXPECT_EQ(plan.schedule.peak_lr, 0.01);
}

TEST(Resolve, warmup_max_lr_follows_the_optimizer_unless_it_is_given) {
  const char* optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": 0.003}})";
  const auto peak = [&](const char* params) {
    return plan_of(fmt::format(R"({{"deepspeed": {{{}, "scheduler": {{"type": "WarmupLR", "params": {}}}}}}})",
                               optimizer, params))
        .schedule.peak_lr;
  };
  EXPECT_EQ(peak("{}"), 0.003);
  EXPECT_EQ(peak(R"({"warmup_max_lr": "auto"})"), 0.003);
  EXPECT_EQ(peak(R"({"warmup_max_lr": 0.007})"), 0.007);
}

TEST(Resolve, a_parameter_of_another_schedule_is_an_error) {
  EXPECT_THAT(error_of(R"({"deepspeed": {"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}}})"),
              HasSubstr("WarmupLR has no parameter cos_min_ratio"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_max_lr": 1}}}})"),
              HasSubstr("WarmupCosineLR has no parameter warmup_max_lr"));
}

TEST(Resolve, doubtful_warmups_are_warned_about) {
  EXPECT_THAT(plan_of(R"({"training": {"max_steps": 10, "warmup_steps": 20}})").warnings,
              ElementsAre(HasSubstr("the warmup of 20 updates is longer than the run of 10")));
  EXPECT_THAT(plan_of(R"({"training": {"max_steps": 10, "warmup_steps": 2, "warmup_ratio": 0.5}})").warnings,
              ElementsAre(HasSubstr("training.warmup_ratio = 0.5 has no effect")));
  EXPECT_THAT(plan_of(R"({"training": {"lr_scheduler_type": "constant", "warmup_steps": 2}})").warnings,
              ElementsAre(HasSubstr("training.warmup_steps has no effect: the schedule is constant")));
}

TEST(Resolve, a_run_by_epochs_gets_its_length_once_the_data_is_known) {
  const RunPlan open = plan_of(R"({"training": {"num_train_epochs": 2.5, "warmup_ratio": 0.1}})");
  EXPECT_EQ(open.max_steps, 0);
  EXPECT_EQ(value_of(open, "max_steps"), "?");
  const RunPlan plan = with_steps_per_epoch(open, 15);
  EXPECT_EQ(plan.max_steps, 38);
  EXPECT_EQ(plan.schedule.total_steps, 38);
  EXPECT_EQ(plan.schedule.warmup_steps, 4);
  EXPECT_EQ(value_of(plan, "max_steps"), "38");
  EXPECT_EQ(value_of(plan, "schedule.warmup_steps"), "4");
  EXPECT_EQ(with_steps_per_epoch(plan, 7).max_steps, 38);
  EXPECT_THROW(with_steps_per_epoch(open, 0), ConfigError);
}

TEST(Resolve, a_deepspeed_schedule_by_epochs_is_filled_the_same_way) {
  const RunPlan plan =
      with_steps_per_epoch(plan_of(run_with(R"({"num_train_epochs": 1, "warmup_ratio": 0.5})", kZero3)), 20);
  EXPECT_EQ(plan.schedule.total_steps, 20);
  EXPECT_EQ(plan.schedule.warmup_steps, 10);
}

TEST(Explain, is_an_aligned_table_of_key_value_and_reason_and_then_the_warnings) {
  RunPlan plan;
  plan.resolved = {{"a", "1", "default"}, {"long_key", "0.001", "RUN"}};
  plan.warnings = {"mind the gap"};
  EXPECT_EQ(explain(plan), "a         1      default\nlong_key  0.001  RUN\nwarning: mind the gap\n");
}

TEST(Resolve, deepspeed_optimizers_become_methods_with_their_parameters) {
  const auto plan_with = [](const std::string& type, const std::string& params) {
    return plan_of(fmt::format(R"({{"deepspeed": {{"optimizer": {{"type": "{}", "params": {}}}}}}})", type, params));
  };
  const auto sgd = std::get<SgdOptions>(plan_with("SGD", R"({"momentum": 0.9, "nesterov": true})").optimizer.method);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  const auto lamb = std::get<LambOptions>(plan_with("Lamb", R"({"max_coeff": 5, "min_coeff": 0.1})").optimizer.method);
  EXPECT_EQ(lamb.max_coeff, 5);
  EXPECT_EQ(lamb.min_coeff, 0.1);
  EXPECT_EQ(std::get<LionOptions>(plan_with("Lion", "{}").optimizer.method).beta2, 0.99);
  EXPECT_EQ(std::get<AdagradOptions>(plan_with("Adagrad", "{}").optimizer.method).eps, 1e-10);
  const auto muon =
      std::get<MuonOptions>(plan_with("Muon", R"({"lr": 0.001, "muon_lr": 0.02, "momentum": 0.9})").optimizer.method);
  EXPECT_DOUBLE_EQ(muon.lr_scale, 20);
  EXPECT_EQ(muon.others_lr_scale, 1);
  EXPECT_EQ(muon.momentum, 0.9);
}

TEST(Resolve, training_names_optimizers_their_arguments_and_groups) {
  const RunPlan plan = plan_of(R"({"training": {"optim": "sgd", "optim_args": "momentum=0.9, nesterov=True",
    "weight_decay_all": true, "parameter_groups": [{"pattern": "embed", "lr_scale": 0.1, "weight_decay": 0}]}})");
  EXPECT_EQ(std::get<SgdOptions>(plan.optimizer.method).momentum, 0.9);
  EXPECT_TRUE(std::get<SgdOptions>(plan.optimizer.method).nesterov);
  EXPECT_TRUE(plan.optimizer.decay_all);
  ASSERT_EQ(plan.optimizer.groups.size(), 1u);
  EXPECT_EQ(plan.optimizer.groups[0].weight_decay, 0);
  EXPECT_EQ(plan_of(R"({"training": {"optim": "adamw_8bit"}})").optimizer.state_block, 256);
  EXPECT_EQ(plan_of(R"({"training": {"optim": "adamw_8bit", "optim_args": "block_size=2048"}})").optimizer.state_block,
            2048);
}

TEST(Resolve, bad_optimizer_values_are_one_line_errors) {
  const auto training = [](const std::string& text) { return error_of("{\"training\": {" + text + "}}"); };
  EXPECT_THAT(training(R"("optim_args": "momentum=0.9")"), HasSubstr("this optimizer has no parameter momentum"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "momentum")"), HasSubstr("expected key=value pairs"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "momentun=1")"), HasSubstr("did you mean"));
  EXPECT_THAT(training(R"("optim": "sgd", "optim_args": "nesterov=true")"), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(training(R"("parameter_groups": [{"pattern": "("}])"), HasSubstr("is not a regular expression"));
  EXPECT_THAT(training(R"("parameter_groups": [{"lr_scale": 2}])"), HasSubstr("expected a pattern"));
  EXPECT_THAT(training(R"("lr_scheduler_kwargs": {"power": 2})"), HasSubstr("linear has no such parameter"));
  EXPECT_THAT(error_of(R"({"training": {"optim": "sgd"}, "deepspeed": {"optimizer": {"type": "Lion"}}})"),
              HasSubstr("contradicts"));
}

TEST(Resolve, deepspeed_range_test_and_one_cycle_have_their_own_parameters) {
  const auto with = [](const std::string& type, const std::string& params) {
    return fmt::format(R"({{"deepspeed": {{"scheduler": {{"type": "{}", "params": {}}}}}}})", type, params);
  };
  const RunPlan range =
      plan_of(with("LRRangeTest", R"({"lr_range_test_step_size": 5, "lr_range_test_staircase": true})"));
  EXPECT_EQ(range.schedule.type, ScheduleType::lr_range_test);
  EXPECT_EQ(range.schedule.range.step_size, 5);
  EXPECT_TRUE(range.schedule.range.staircase);
  const RunPlan cycle = plan_of(with("OneCycle", R"({"cycle_min_lr": 0.001, "cycle_max_lr": 0.01})"));
  EXPECT_EQ(cycle.schedule.peak_lr, 0.01);
  EXPECT_EQ(cycle.schedule.cycle.second_steps, 2000);
  EXPECT_TRUE(cycle.optimizer.momentum_cycle.has_value());
  EXPECT_THAT(error_of(with("OneCycle", "{}")), HasSubstr("needs cycle_min_lr"));
  EXPECT_THAT(error_of(with("WarmupLR", R"({"cycle_min_lr": 1})")), HasSubstr("has no parameter cycle_min_lr"));
}

}  // namespace
}  // namespace nought
