// A run with virtual ranks has the same bits on any number of ranks: losses, norms, what routers count, validations and
// the exported weights.
#include <filesystem>
#include <fstream>

#include "support/message_of.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/tiny_llama.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::virtual_ranks_test {
namespace {

using test::plan_on_lines;
using test::run_plan;
using test::runs_everything;
using test::TempFolder;
using test::ToldRun;

NOUGHT_FILE_SIZE(medium);

/// How a run is laid out.
struct RunLayout {
  int ranks = 1, stage = 0;
  bool offloads = false;  // states to files; at stage 3 parameters too
  int64_t bucket = 0;
  int tensor = 1, pipeline = 1, replicas = 1;
};

std::string name_of(const RunLayout& of) {
  return fmt::format("{} ranks, stage {}{}, buckets of {}, tp {}, pp {}, {} replicas", of.ranks, of.stage,
                     of.offloads ? ", offloaded" : "", of.bucket, of.tensor, of.pipeline, of.replicas);
}

/// What is trained, whatever the layout.
struct Subject {
  bool experts = false;
  DType dtype = DType::f32;
  int state_block = 0;
  int virtual_ranks = 4;
  int64_t steps = 3;
};

Json experts_json() {
  Json json = test::tiny_llama_json();
  json.update({{"model_type", "qwen2_moe"},
               {"num_key_value_heads", 2},
               {"num_experts", 4},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 16},
               {"shared_expert_intermediate_size", 24},
               {"decoder_sparse_step", 1},
               {"output_router_logits", true},
               {"router_aux_loss_coef", 0.05}});
  return json;
}

RunPlan plan_of(const TempFolder& folder, const Subject& of, const RunLayout& on) {
  RunPlan plan = plan_on_lines(folder, of.steps);
  if (of.experts) plan.model_config = experts_json();
  plan.data.separate_documents = true;
  plan.data.validation_fraction = 0.1;
  plan.gradient_clipping = 0.5;
  Layout& layout = plan.layout;
  layout.micro_batch = layout.evaluation_rows = 1;
  layout.zero_stage = on.stage;
  layout.replicas = on.replicas;
  layout.tensor_ranks = on.tensor;
  layout.pipeline.ranks = on.pipeline;
  layout.accumulation = of.virtual_ranks / (on.ranks / on.tensor / on.pipeline);
  layout.sharding.virtual_ranks = of.virtual_ranks;
  layout.sharding.dtype = of.dtype;
  layout.sharding.reduce_bucket = layout.sharding.gather_bucket = on.bucket;
  layout.sharding.optimizer.state_block = of.state_block;
  if (on.offloads) {
    const std::string files = (folder / "files").string();
    std::filesystem::create_directories(files);
    layout.sharding.offload_optimizer.tier = {.pool = Pool::file, .folder = files};
    layout.sharding.offload_optimizer.gradients_in_file = true;
    layout.sharding.offload_optimizer.early = layout.sharding.offload_optimizer.undo = on.stage != 3;
    if (on.stage == 3) layout.sharding.offload_param.tier = {.pool = Pool::file, .folder = files};
  }
  return plan;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All that a run tells of its steps, and its weights.
struct Bits {
  std::vector<double> numbers;
  std::string weights;
  friend bool operator==(const Bits&, const Bits&) = default;
};

Bits bits_of(const ToldRun& run) {
  Bits bits{{}, bytes_of(run.exported / "model.safetensors")};
  for (const StepReport& step : run.steps) {
    bits.numbers.insert(bits.numbers.end(), {step.loss, step.grad_norm, step.experts.dropped});
    for (const std::vector<double>& layer : step.experts.chosen)
      bits.numbers.insert(bits.numbers.end(), layer.begin(), layer.end());
  }
  for (const auto& [step, evaluation] : run.validations) bits.numbers.push_back(evaluation.loss);
  EXPECT_FALSE(bits.weights.empty());
  return bits;
}

Bits run_on(const Subject& of, const RunLayout& on) {
  const TempFolder folder;
  return bits_of(run_plan(plan_of(folder, of, on), {.ranks = on.ranks}));
}

void expect_same_on(const Subject& of, const std::vector<RunLayout>& layouts) {
  const Bits expected = run_on(of, layouts.front());
  for (size_t i = 1; i < layouts.size(); ++i) {
    const Bits bits = run_on(of, layouts[i]);
    EXPECT_EQ(bits.numbers, expected.numbers) << name_of(layouts[i]);
    EXPECT_TRUE(bits.weights == expected.weights) << name_of(layouts[i]);
  }
}

TEST(VirtualRanks, have_the_bits_of_one_rank_on_any_number_of_them) {
  expect_same_on({}, {{.ranks = 1},
                      {.ranks = 4, .stage = 0},
                      {.ranks = 2, .stage = 1},
                      {.ranks = 1, .stage = 2, .offloads = true},
                      {.ranks = 2, .stage = 2, .bucket = 3000},
                      {.ranks = 2, .stage = 3, .offloads = true},
                      {.ranks = 4, .stage = 3}});
}

TEST(VirtualRanks, of_experts_balance_and_count_as_one_rank_does) {
  expect_same_on({.experts = true, .dtype = DType::bf16},
                 {{.ranks = 1}, {.ranks = 2, .stage = 0}, {.ranks = 2, .stage = 2}, {.ranks = 4, .stage = 1}});
}

TEST(VirtualRanks, cut_blocks_of_8_bit_states_alike) {
  expect_same_on({.state_block = 64}, {{.ranks = 1}, {.ranks = 4, .stage = 1}, {.ranks = 2, .stage = 3}});
}

TEST(VirtualRanks, have_the_bits_of_one_data_parallel_rank_on_each_mesh) {
  expect_same_on({}, {{.ranks = 1},
                      {.ranks = 2, .pipeline = 2},
                      {.ranks = 4, .stage = 2, .pipeline = 2},
                      {.ranks = 2, .stage = 2, .replicas = 2},
                      {.ranks = 4, .stage = 3, .replicas = 2}});
  expect_same_on(
      {}, {{.ranks = 2, .tensor = 2}, {.ranks = 4, .stage = 1, .tensor = 2}, {.ranks = 4, .stage = 3, .tensor = 2}});
}

TEST(VirtualRanks, are_the_same_run_when_it_resumes_on_others) {
  const Subject of{.steps = 6};
  const Bits whole = run_on(of, {.ranks = 2, .stage = 1});
  const TempFolder folder;
  std::vector<StepReport> steps;
  ToldRun last;
  const auto go_on = [&](const RunLayout& on, StartMode mode, int64_t stop) {
    RunPlan plan = plan_of(folder, of, on);
    last = run_plan(plan, {.ranks = on.ranks, .mode = mode, .stopped_in_step = stop});
    steps.insert(steps.end(), last.steps.begin(), last.steps.end());
  };
  go_on({.ranks = 4, .stage = 2}, StartMode::fresh, 2);
  go_on({.ranks = 1}, StartMode::resume, 4);
  go_on({.ranks = 2, .stage = 3}, StartMode::resume, 0);
  last.steps = steps;
  EXPECT_TRUE(bits_of(last) == whole);
}

TEST(VirtualRanks, that_change_on_resume_are_refused_with_those_that_fit) {
  const TempFolder folder;
  run_plan(plan_of(folder, {}, {}));
  const auto resumed = [&](int virtual_ranks) {
    return test::message_of<ConfigError>([&] {
      run_plan(plan_of(folder, {.virtual_ranks = virtual_ranks, .steps = 4}, {}), {.mode = StartMode::resume});
    });
  };
  EXPECT_THAT(resumed(2), testing::HasSubstr("is of a run with 4: go on with 4"));
  RunPlan plan = plan_of(folder, {}, {});
  plan.layout.sharding.virtual_ranks = 0;
  EXPECT_THAT(test::message_of<ConfigError>([&] { run_plan(plan, {.mode = StartMode::resume}); }),
              testing::HasSubstr("training.virtual_ranks is 0"));
}

TEST(VirtualRanks, on_pipelines_of_tied_models_are_refused) {
  const TempFolder folder;
  RunPlan plan = plan_of(folder, {}, {.ranks = 2, .pipeline = 2});
  plan.layout.ranks = 2;
  EXPECT_NO_THROW(model_config_of(plan));
  plan.model_config["tie_word_embeddings"] = true;
  EXPECT_THAT(test::message_of<ConfigError>([&] { model_config_of(plan); }),
              testing::HasSubstr("tied embeddings of this llama model"));
}

/// All of the table in docs/communication.md, 30 steps each.
NOUGHT_SIZE(long);
TEST(VirtualRanks, any_layout_has_the_bits_of_any_other) {
  for (const bool experts : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Subject of{.experts = experts, .dtype = dtype, .virtual_ranks = 8, .steps = test::sweep(2, 30)};
      std::vector<RunLayout> layouts;
      for (const int ranks : {1, 2, 4, 8})
        for (const int stage : {0, 1, 2, 3})
          for (const bool offloads : {false, true})
            if (runs_everything() || (ranks + stage) % 5 == 0)
              layouts.push_back({.ranks = ranks, .stage = stage, .offloads = offloads});
      expect_same_on(of, layouts);
    }
}

}  // namespace
}  // namespace nought::virtual_ranks_test
