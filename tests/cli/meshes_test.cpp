// Runs of processes that share matrices, slice tokens, hold different experts or the stages of a pipeline: they are
// those of one process.
#include "support/environment.h"
#include "support/known_paths.h"
#include "support/metrics_lines.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::meshes_test {
namespace {

using nlohmann::json;
using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRows = 4, kSteps = 6;

/// A dense layer, and one of experts with a shared expert; each micro-batch has kRows rows over all data ranks.
void write_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("for (int i = {}; i < {}; ++i) sum += {};\n", i % 7, i % 31, i % 3);
  folder.write("text.txt", text);
  const json model{{"model_type", "qwen2_moe"},
                   {"vocab_size", 257},
                   {"hidden_size", 32},
                   {"intermediate_size", 48},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"num_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 16},
                   {"shared_expert_intermediate_size", 24},
                   {"mlp_only_layers", {0}},
                   {"max_position_embeddings", 64}};
  folder.write("run.json",
               json{{"model", model},
                    {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 16}}},
                    {"training",
                     {{"max_steps", kSteps},
                      {"gradient_accumulation_steps", 2},
                      {"learning_rate", 1e-3},
                      {"lr_scheduler_type", "constant"},
                      {"adam_epsilon", 1e-4},
                      {"logging_steps", 1},
                      {"save_steps", kSteps / 2}}}}
                   .dump());
}

/// The arguments of a mesh of so many processes.
std::string mesh(int ranks, int tensor, int expert, int stage) {
  std::string text = fmt::format("--ranks {} --set deepspeed.zero_optimization.stage={}", ranks, stage);
  if (tensor > 1)
    text += fmt::format(
        " --set training.parallelism_config.tp_size={} --set training.parallelism_config.sequence_parallel=true",
        tensor);
  if (expert > 1)
    text += fmt::format(" --set deepspeed.expert_parallel.enabled=true --set deepspeed.expert_parallel.autoep_size={}",
                        expert);
  return fmt::format("{} --set training.per_device_train_batch_size={}", text, kRows * tensor / ranks);
}

Ended train(const TempFolder& folder, const std::string& out, const std::string& more) {
  return run_program(fmt::format("{} train {} --set training.output_dir={} {}", test::known_path("nought"),
                                 (folder / "run.json").string(), (folder / out).string(), more));
}

/// The lines of steps.
std::vector<json> metrics_of(const TempFolder& folder, const std::string& out) {
  return test::metrics_lines(folder / out / "metrics.jsonl", "loss");
}

void expect_steps_of(const std::vector<json>& alone, const std::vector<json>& steps) {
  ASSERT_EQ(steps.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i)
    for (const char* number : {"loss", "grad_norm"}) {
      const auto want = alone[i].at(number).get<double>();
      EXPECT_NEAR(steps[i].at(number).get<double>(), want, 1e-5 * want) << number << " of step " << i + 1;
    }
}

double evaluated(const TempFolder& folder, const std::string& out, const std::string& more) {
  const Ended ended = run_program(fmt::format("{} eval {} {} --batch-size 2 --json {}", test::known_path("nought"),
                                              (folder / out).string(), (folder / "run.json").string(), more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.exit_code == 0 ? json::parse(ended.out).at("loss").get<double>() : 0;
}

TEST(Meshes, processes_train_resume_and_evaluate_as_one_does) {
  const TempFolder folder;
  write_run(folder);
  const Ended one = train(folder, "one", mesh(1, 1, 1, 0));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const std::vector<json> alone = metrics_of(folder, "one");
  ASSERT_EQ(alone.size(), static_cast<size_t>(kSteps));

  const Ended both = train(folder, "both", mesh(4, 2, 2, 3));
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("mesh    tensor          2   ranks 0 1 | 2 3\n"));
  EXPECT_THAT(both.out, HasSubstr("expert          2   ranks 0 2 | 1 3\n"));
  expect_steps_of(alone, metrics_of(folder, "both"));

  // A run of two processes that hold different experts goes on as one of two that share matrices.
  const Ended experts = train(folder, "chain", mesh(2, 1, 2, 2) + " --set training.max_steps=3");
  ASSERT_EQ(experts.exit_code, 0) << experts.err;
  const Ended tensor = train(folder, "chain", mesh(2, 2, 1, 0) + " --resume");
  ASSERT_EQ(tensor.exit_code, 0) << tensor.err;
  expect_steps_of({alone.begin() + kSteps / 2, alone.end()}, [&] {
    std::vector<json> steps = metrics_of(folder, "chain");
    steps.erase(steps.begin(), steps.begin() + kSteps / 2);
    return steps;
  }());
  EXPECT_NEAR(evaluated(folder, "both", mesh(4, 2, 2, 3)), evaluated(folder, "one", "--ranks 1"), 1e-5);
}

TEST(Meshes, processes_that_hold_stages_train_resume_and_evaluate_as_one_does) {
  const TempFolder folder;
  write_run(folder);
  const auto stages = [](int ranks, int tensor, const char* schedule) {
    return fmt::format(
        "--ranks {} --set training.parallelism_config.tp_size={} --set training.parallelism_config.pp_size=2 --set "
        "training.parallelism_config.pipeline_parallel_schedule={} --set training.per_device_train_batch_size={}",
        ranks, tensor, schedule, kRows);
  };
  ASSERT_EQ(train(folder, "one", mesh(1, 1, 1, 0)).exit_code, 0);
  const std::vector<json> alone = metrics_of(folder, "one");

  const Ended half = train(folder, "chain", stages(4, 2, "1F1B") + " --set training.max_steps=3");
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.out, HasSubstr("pipeline        2   ranks 0 2 | 1 3\n"));
  EXPECT_THAT(half.out, HasSubstr("stage 1         2   Units: block.1 to head, "));
  const Ended whole = train(folder, "chain", stages(2, 1, "ZBVZeroBubble") + " --resume");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  expect_steps_of(alone, metrics_of(folder, "chain"));
  const double want = evaluated(folder, "one", "--ranks 1");
  EXPECT_NEAR(evaluated(folder, "chain", stages(4, 2, "1F1B")), want, 1e-5);
}

TEST(Meshes, processes_that_hold_replicas_train_resume_and_evaluate_as_one_does) {
  const TempFolder folder;
  write_run(folder);
  const auto over = [](int ranks, int stage, const char* keys) {
    return fmt::format(
        "--ranks {} --set deepspeed.zero_optimization.stage={} --set training.per_device_train_batch_size={} --set {}",
        ranks, stage, kRows / ranks, keys);
  };
  ASSERT_EQ(train(folder, "one", mesh(1, 1, 1, 0)).exit_code, 0);
  const std::vector<json> alone = metrics_of(folder, "one");

  const std::string mics = over(4, 3, "deepspeed.zero_optimization.mics_shard_size=2");
  const Ended half = train(folder, "chain", mics + " --set training.max_steps=3");
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.out, HasSubstr("mesh    shard           2   ranks 0 1 | 2 3\n"));
  EXPECT_THAT(half.out, HasSubstr("replicate       2   ranks 0 2 | 1 3\n"));
  const Ended copies =
      train(folder, "chain", over(2, 1, "training.parallelism_config.dp_replicate_size=2") + " --resume");
  ASSERT_EQ(copies.exit_code, 0) << copies.err;
  expect_steps_of(alone, metrics_of(folder, "chain"));
  EXPECT_NEAR(evaluated(folder, "chain", mics), evaluated(folder, "one", "--ranks 1"), 1e-5);

  // Shards among all ranks are stage 3, also where two hosts with two ranks each gather them.
  const std::string all = over(4, 3, "deepspeed.zero_optimization.mics_shard_size=4");
  ASSERT_EQ(train(folder, "all", all).exit_code, 0);
  ASSERT_EQ(train(folder, "plain", mesh(4, 1, 1, 3)).exit_code, 0);
  const test::Environment two_hosts{{"LOCAL_WORLD_SIZE", "2"}};
  const Ended hosts =
      train(folder, "hosts", all + " --set deepspeed.zero_optimization.mics_hierarchical_params_gather=true");
  ASSERT_EQ(hosts.exit_code, 0) << hosts.err;
  EXPECT_THAT(hosts.err, Not(HasSubstr("has no effect")));
  const std::vector<json> plain = metrics_of(folder, "plain");
  for (const char* same : {"all", "hosts"}) {
    const std::vector<json> steps = metrics_of(folder, same);
    ASSERT_EQ(steps.size(), plain.size());
    for (size_t i = 0; i < steps.size(); ++i)
      for (const char* number : {"loss", "grad_norm"})
        EXPECT_EQ(steps[i].at(number), plain[i].at(number)) << number << " of step " << i + 1 << ", " << same;
  }
}

TEST(Meshes, processes_that_share_sequences_train_resume_and_evaluate_as_one_does) {
  const TempFolder folder;
  write_run(folder);
  const auto parts = [](int ranks, const char* size, int context, const char* more, int stage) {
    return fmt::format(
        "--ranks {} --set training.parallelism_config.{}={} --set deepspeed.zero_optimization.stage={} --set "
        "training.per_device_train_batch_size={} --set data.seq_length=15 {}",
        ranks, size, context, stage, kRows * context / ranks, more);
  };
  ASSERT_EQ(train(folder, "one", parts(1, "cp_size", 1, "", 0)).exit_code, 0);
  const std::vector<json> alone = metrics_of(folder, "one");
  ASSERT_EQ(alone.size(), static_cast<size_t>(kSteps));

  const std::string ring = "--set training.parallelism_config.cp_comm_type=p2p";
  const Ended half = train(folder, "chain", parts(4, "cp_size", 2, ring.c_str(), 3) + " --set training.max_steps=3");
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.out, HasSubstr("context         2   ranks 0 1 | 2 3\n"));
  EXPECT_THAT(half.out, HasSubstr("sequences       2   p2p: as asked\n"));
  const Ended whole = train(folder, "chain", parts(2, "sp_size", 2, "", 1) + " --resume");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  expect_steps_of(alone, metrics_of(folder, "chain"));
  const double want = evaluated(folder, "one", "--ranks 1 --set data.seq_length=15");
  EXPECT_NEAR(evaluated(folder, "chain", parts(4, "cp_size", 4, "", 0)), want, 1e-5);
}

}  // namespace
}  // namespace nought::meshes_test
