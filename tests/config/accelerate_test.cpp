#include "nought/config/accelerate.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/run_config.h"
#include "nought/config/yaml.h"

namespace nought::accelerate_test {
namespace {

using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kZero3 = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

AccelerateConfig read(std::string_view yaml, const std::string& file = "acc.yaml") {
  Origins origins("RUN.json");
  return read_accelerate_config(parse_yaml(yaml, file), file, origins);
}

std::string error_of(std::string_view yaml) {
  return test::message_of<ConfigError>([&] { read(yaml); });
}

TEST(Accelerate, what_accelerate_config_writes_is_a_ds_config) {
  ASSERT_TRUE(is_accelerate_config(parse_yaml(kZero3, "acc.yaml")));
  EXPECT_FALSE(is_accelerate_config(Json{{"zero_optimization", {{"stage", 3}}}}));
  const AccelerateConfig config = read(kZero3);
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_EQ(config.num_processes, 2);
  EXPECT_EQ(config.deepspeed, (Json{{"train_batch_size", "auto"},
                                    {"train_micro_batch_size_per_gpu", "auto"},
                                    {"gradient_accumulation_steps", 4},
                                    {"gradient_clipping", 1.0},
                                    {"bf16", {{"enabled", true}}},
                                    {"fp16", {{"enabled", "auto"}}},
                                    {"zero_optimization",
                                     {{"stage", 3},
                                      {"offload_optimizer", {{"device", "cpu"}}},
                                      {"offload_param", {{"device", "none"}}},
                                      {"stage3_gather_16bit_weights_on_model_save", true}}}}));
}

/// TRL's alst_ulysses_4gpu.yaml has it.
TEST(Accelerate, the_dtype_of_ranks_that_share_sequences_is_a_key_of_a_ds_config) {
  const AccelerateConfig config = read(
      "deepspeed_config:\n  zero_stage: 3\n  seq_parallel_communication_data_type: bf16\n"
      "distributed_type: DEEPSPEED\n");
  EXPECT_EQ(config.deepspeed["seq_parallel_communication_data_type"], "bf16");
}

TEST(Accelerate, a_run_names_the_yaml_where_a_ds_config_may_stand) {
  const TempFolder folder;
  folder.write("acc.yaml", kZero3);
  const std::string run =
      folder
          .write("run.json",
                 R"({"deepspeed": "acc.yaml", "training": {"bf16": true, "gradient_accumulation_steps": 4}})")
          .string();
  const RunPlan plan = resolve(load_run_config(run, {}), 2);
  EXPECT_EQ(plan.layout.zero_stage, 3);
  EXPECT_EQ(plan.layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan.layout.accumulation, 4);
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("acc.yaml: deepspeed_config.offload_optimizer_device = \"cpu\"")));
  EXPECT_THAT(resolve(load_run_config(run, {}), 4).warnings.front(),
              HasSubstr("acc.yaml: num_processes = 2, but the run has 4: --ranks decides"));
}

TEST(Accelerate, a_conflict_names_the_key_of_the_yaml) {
  const TempFolder folder;
  folder.write("acc.yaml", kZero3);
  const std::string run =
      folder.write("run.json", R"({"deepspeed": "acc.yaml", "training": {"gradient_accumulation_steps": 8}})").string();
  EXPECT_THAT(test::message_of<ConfigError>([&] { resolve(load_run_config(run, {}), 2); }),
              HasSubstr("acc.yaml: deepspeed_config.gradient_accumulation_steps = 4 contradicts"));
}

TEST(Accelerate, a_ds_config_that_it_names_is_read_from_beside_it) {
  const TempFolder folder;
  folder.write("ds.json",
               R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": 2})");
  const std::string file = (folder / "acc.yaml").string();
  const AccelerateConfig config = read(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n  "
      "zero3_init_flag: true\n",
      file);
  EXPECT_EQ(config.deepspeed, (Json{{"zero_optimization", {{"stage", 2}}},
                                    {"bf16", {{"enabled", true}}},
                                    {"fp16", {{"enabled", "auto"}}},
                                    {"gradient_clipping", 2}}));
  EXPECT_THAT(test::message_of<ConfigError>([&] {
                read("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json, zero_stage: 3}",
                     file);
              }),
              HasSubstr("deepspeed_config.zero_stage contradicts deepspeed_config_file"));
}

TEST(Accelerate, data_parallelism_alone_is_stage_0_and_no_leaves_the_dtype_to_training) {
  const AccelerateConfig config = read("distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 4\n");
  EXPECT_FALSE(config.deepspeed.contains("zero_optimization"));
  EXPECT_EQ(config.deepspeed["bf16"]["enabled"], "auto");
  EXPECT_EQ(read("distributed_type: NO\n").deepspeed["fp16"]["enabled"], "auto") << "NO is false in YAML";
  EXPECT_EQ(read("distributed_type: DEEPSPEED\n").deepspeed["zero_optimization"]["stage"], 2) << "accelerate's default";
  EXPECT_EQ(read("distributed_type: NO\nmixed_precision: fp16\n").deepspeed["fp16"]["enabled"], true);
}

TEST(Accelerate, what_belongs_to_launching_is_said_and_not_taken) {
  EXPECT_THAT(read("distributed_type: DEEPSPEED\nnum_machines: 2\nmain_process_ip: 10.0.0.1\ndeepspeed_config: "
                   "{deepspeed_hostfile: hosts, deepspeed_multinode_launcher: standard}\n")
                  .warnings,
              ElementsAre(HasSubstr("main_process_ip"), HasSubstr("num_machines = 2 has no effect: mpirun"),
                          HasSubstr("deepspeed_config.deepspeed_hostfile")));
}

constexpr const char* kMesh = R"(distributed_type: MULTI_GPU
num_processes: 4
parallelism_config:
  parallelism_config_cp_comm_strategy: allgather
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";

TEST(Accelerate, its_mesh_is_that_of_training) {
  const TempFolder folder;
  folder.write("acc.yaml", kMesh);
  const auto run = [&](const std::string& training) {
    const auto path = folder.write("run.json", fmt::format(R"({{"deepspeed": "acc.yaml", "training": {}}})", training));
    return resolve(load_run_config(path.string(), {}), 4);
  };
  for (const char* training : {"{}", "null", R"({"parallelism_config": {"tp_size": 2}})"}) {
    const RunPlan plan = run(training);
    EXPECT_EQ(plan.layout.tensor_ranks, 2) << training;
    EXPECT_EQ(plan.layout.shard_ranks(), 2) << training;
  }
  EXPECT_THAT(test::message_of<ConfigError>([&] { run(R"({"parallelism_config": {"tp_size": 4}})"); }),
              HasSubstr("acc.yaml: parallelism_config.parallelism_config_tp_size = 2 contradicts"));
  EXPECT_EQ(read(kMesh).parallelism,
            (Json{{"cp_size", 1}, {"dp_replicate_size", 1}, {"dp_shard_size", 2}, {"tp_size", 2}}));
  EXPECT_TRUE(
      read("distributed_type: NO\nparallelism_config: {parallelism_config_dp_shard_size: 1}").parallelism.empty())
      << "sizes of 1 that accelerate writes into every file say nothing of how many ranks shard";
  EXPECT_THAT(error_of("distributed_type: NO\nparallelism_config: {parallelism_config_tp_sise: 2}"),
              HasSubstr("parallelism_config.parallelism_config_tp_sise: unknown key (did you mean \"tp_size\"?)"));
}

TEST(Accelerate, ranks_that_share_sequences_attend_by_the_strategy_that_it_names) {
  const auto mesh = [](const std::string& more) {
    return read("distributed_type: MULTI_GPU\nparallelism_config:\n  parallelism_config_cp_size: 2\n" + more)
        .parallelism;
  };
  EXPECT_EQ(mesh(""), (Json{{"cp_size", 2}}));
  EXPECT_EQ(mesh("  parallelism_config_cp_comm_strategy: allgather\n"),
            (Json{{"cp_size", 2}, {"cp_comm_type", "all_gather"}}));
  EXPECT_EQ(mesh("  parallelism_config_cp_comm_strategy: alltoall\n"), (Json{{"cp_size", 2}, {"cp_comm_type", "p2p"}}));
  EXPECT_THAT(error_of("distributed_type: NO\nparallelism_config: {cp_size: 2, cp_comm_strategy: ring}"),
              HasSubstr("parallelism_config.cp_comm_strategy = \"ring\": expected allgather or alltoall"));
}

TEST(Accelerate, what_cannot_be_followed_is_refused_all_at_once) {
  EXPECT_EQ(
      error_of("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\nnum_proceses: 2\n"),
      "acc.yaml: distributed_type = \"FSDP\" is not supported: only distributed_type DEEPSPEED, MULTI_CPU, "
      "MULTI_GPU and NO are available; acc.yaml: fsdp_config = {\"fsdp_sharding_strategy\":\"FULL_SHARD\"} is not "
      "supported: only distributed_type DEEPSPEED, MULTI_CPU, MULTI_GPU and NO are available; only null | {} is "
      "accepted; acc.yaml: num_proceses: unknown key (did you mean \"num_processes\"?)");
  EXPECT_THAT(error_of("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stge: 2}\n"),
              HasSubstr("deepspeed_config.zero_stge: unknown key (did you mean \"zero_stage\"?)"));
  EXPECT_THAT(error_of("distributed_type: NO\nmixed_precision: fp8\n"), HasSubstr("write training.fp8"));
}

}  // namespace
}  // namespace nought::accelerate_test
