// Benchmarks run what they say, on every rank; what they measure is not judged here.
#include "nought/bench/bench.h"

#include <array>
#include <atomic>
#include <mutex>

#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/trial_steps.h"

namespace nought::bench_test {
namespace {

constexpr double kPeak = 1e18;  // beyond any machine

Limits fixed_limits(double peak = kPeak) {
  return {.matrix = [peak](DType) { return peak; }, .memory = [] { return 1.0; }};
}

TEST(Bench, no_figure_exceeds_the_matrix_peak) {
  Figure products{.name = "", .work = 1e6, .unit = "FLOP", .limit_name = kMatrixPeak}, copies = products;
  copies.limit_name = "triad";
  for (Figure* figure : {&products, &copies})
    measure(
        *figure, 2, 0, [] { return 1.0; }, [] {});
  EXPECT_EQ(products.fraction(), 1.0);
  EXPECT_GT(copies.fraction(), 1.0);  // a triad is no limit of all loops
  EXPECT_EQ(raised_peak(5, 4, [] { return 9.0; }), 5);
  EXPECT_EQ(raised_peak(5, 6, [] { return 9.0; }), 9);
  EXPECT_EQ(raised_peak(5, 6, [] { return 2.0; }), 6);
}

TEST(Bench, answers_of_a_group_stand_beside_those_to_prompts_of_their_own) {
  const ModelConfig config = ModelConfig::from_json({{"model_type", "llama"},
                                                     {"vocab_size", 64},
                                                     {"hidden_size", 16},
                                                     {"intermediate_size", 32},
                                                     {"num_hidden_layers", 2},
                                                     {"num_attention_heads", 2},
                                                     {"max_position_embeddings", 64}});
  run_ranks(1, [&](Communicator& self, const Context& context) {
    const Figure figure = bench_rollout(self, context, DType::f32, 2, config, {4, 40, 3});
    EXPECT_EQ(figure.work, 12);
    EXPECT_EQ(figure.limits.values.size(), 2u);
    EXPECT_GT(figure.fraction(), 0);
    EXPECT_THROW(bench_rollout(self, context, DType::f32, 1, config, {4, 40, 30}), ConfigError);
    EXPECT_THROW(bench_rollout(self, context, DType::f32, 1, config, {1, 40, 3}), ConfigError);
  });
}

TEST(Bench, decoding_reads_weights_once_and_the_cache_of_each_sequence) {
  const ModelConfig config = ModelConfig::from_json({{"model_type", "llama"},
                                                     {"vocab_size", 64},
                                                     {"hidden_size", 16},
                                                     {"intermediate_size", 32},
                                                     {"num_hidden_layers", 2},
                                                     {"num_attention_heads", 2},
                                                     {"max_position_embeddings", 32}});
  run_ranks(1, [&](Communicator& self, const Context& context) {
    const auto figures = bench_decode(self, context, fixed_limits(), DType::f32, 1, config, 7);
    ASSERT_EQ(figures.size(), 3u);
    const double weights = 4.0 * static_cast<double>(config.parameter_count() - 64 * 16), token = 4 * 2 * 2 * 16;
    for (size_t i = 0; i < 3; ++i) {
      const int sequences = std::array{1, 8, 32}[i];
      EXPECT_EQ(figures[i].work, sequences);
      EXPECT_EQ(figures[i].limited_work, weights + sequences * 8 * token);
    }
    EXPECT_THROW(bench_decode(self, context, fixed_limits(), DType::f32, 1, config, 32), ConfigError);
  });
}

TEST(Bench, a_step_counts_the_tokens_of_all_ranks_and_its_model_flops) {
  TrialStep bench = named_step("W1");
  EXPECT_EQ(bench.layout.micro_batch * bench.layout.seq_length, 4096);
  bench.config = ModelConfig::from_json({{"model_type", "llama"},
                                         {"vocab_size", 64},
                                         {"hidden_size", 16},
                                         {"intermediate_size", 32},
                                         {"num_hidden_layers", 1},
                                         {"num_attention_heads", 2}});
  bench.layout.micro_batch = 2, bench.layout.seq_length = 8;
  bench.layout.zero_stage = 2;
  std::atomic<int> ranks_done = 0;
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    const StepFigures report = bench_step(ranks, context, fixed_limits(), bench, 2);
    const Figure& figure = report.step;
    EXPECT_EQ(figure.work, 2 * 2 * 8);
    EXPECT_EQ(figure.seconds.values.size(), 2u);
    EXPECT_EQ(figure.limits.values, (std::vector<double>{2 * kPeak, 2 * kPeak}));  // of both ranks
    EXPECT_GT(figure.limited_work, figure.work * 6 * 64 * 16);                     // the head alone
    EXPECT_GT(figure.facts.at(0).value, 0);                                        // start-up
    EXPECT_EQ(figure.facts.at(1).value, 0);                                        // allocations after the second step
    double seconds = 0, flops = 0;
    for (const Figure& operation : report.operations) {
      seconds += operation.seconds.values.at(1);
      if (operation.unit == "FLOP") flops += operation.work;
    }
    EXPECT_NEAR(seconds, figure.seconds.values.at(1), 1e-6);  // every moment is somebody's
    EXPECT_GT(2 * flops, 0.8 * figure.limited_work);          // attention runs its scores twice, masked halves apart
    EXPECT_LT(2 * flops, 1.5 * figure.limited_work);
    ++ranks_done;
  });
  EXPECT_EQ(ranks_done, 2);
}

TEST(Bench, the_step_of_a_run_has_the_shape_of_its_plan) {
  const test::TempFolder folder;
  RunPlan plan = test::plan_on_lines(folder, 1);
  plan.layout.accumulation = 2;
  const TrialStep bench = step_of(plan, "run.json");
  EXPECT_EQ(bench.layout.accumulation, 2);
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    const Figure figure = bench_step(ranks, context, fixed_limits(), bench, 1).step;
    EXPECT_EQ(figure.work, 2 * 2 * plan.layout.micro_batch * plan.layout.seq_length);
  });
}

TEST(Bench, ranks_that_share_matrices_read_the_same_samples_and_share_the_work) {
  TrialStep bench = step_of(test::plan_on_lines(test::TempFolder(), 1), "run.json");
  const double tokens =
      static_cast<double>(bench.layout.micro_batch * bench.layout.accumulation * bench.layout.seq_length);
  double whole = 0, part = 0;  // FLOPs of products of one rank
  const auto measure_on = [&](int ranks, double& flops) {
    bench.layout.tensor_ranks = ranks;
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      const StepFigures figures = bench_step(world, context, fixed_limits(), bench, 1);
      if (world.rank() != 0) return;
      EXPECT_EQ(figures.step.work, tokens);
      for (const Figure& operation : figures.operations)
        if (operation.unit == "FLOP") flops += operation.work;
    });
  };
  measure_on(1, whole);
  measure_on(2, part);
  EXPECT_NEAR(part, whole / 2, 0.05 * whole);
}

TEST(Bench, ranks_that_hold_different_layers_share_the_work_of_all_micro_batches) {
  TrialStep bench = step_of(test::plan_on_lines(test::TempFolder(), 1), "run.json");
  bench.layout.accumulation = 4;
  const auto flops_on = [&](int ranks, const Pipeline& pipeline) {
    bench.layout.pipeline = pipeline;
    std::mutex mutex;
    double flops = 0;
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      const StepFigures figures = bench_step(world, context, fixed_limits(), bench, 2);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(figures.step.work, static_cast<double>(bench.layout.micro_batch * 4 * bench.layout.seq_length));
      EXPECT_EQ(figures.step.facts.at(1).value, 0) << "late allocations";
      for (const Figure& operation : figures.operations)
        if (operation.unit == "FLOP") flops += operation.work;
    });
    return flops;
  };
  const double whole = flops_on(1, {});
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zbh1})
    EXPECT_NEAR(flops_on(2, {.schedule = schedule, .ranks = 2}), whole, 0.01 * whole) << name_of(schedule);
}

TEST(Bench, all_ranks_know_the_same_times_of_steps_and_keep_no_memory) {
  const test::TempFolder folder;
  const TrialStep bench = step_of(test::plan_on_lines(folder, 1), "run.json");
  std::array<std::vector<double>, 2> seconds;
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    const int64_t peak = context.memory->ledger().peak_total();
    seconds[static_cast<size_t>(ranks.rank())] = measure_steps(ranks, context, bench).values;
    EXPECT_EQ(context.memory->ledger().peak_total(), peak);
  });
  EXPECT_GE(seconds[0].size(), 1u);
  EXPECT_EQ(seconds[0], seconds[1]);
}

TEST(Bench, the_head_holds_the_logits_of_a_chunk_alone) {
  const HeadShape shape{.tokens = 64, .vocabulary = 512, .hidden = 16};
  const Figure figure = bench_head(Context::cpu(), DType::f32, 2, shape);
  EXPECT_EQ(figure.work, 6.0 * 64 * 512 * 16);
  EXPECT_EQ(figure.limits.values.size(), 2u);
  EXPECT_EQ(figure.facts.at(0).value, 64 * 512 * 4 + 64 * 4);  // one chunk, and the losses
}

TEST(Bench, works_have_names) {
  EXPECT_EQ(named_step("W2").config.family, "llama");
  EXPECT_NEAR(static_cast<double>(named_step("W2").config.parameter_count()), 135e6, 25e6);
  EXPECT_EQ(named_step("W3").layout.seq_length, 64);
  EXPECT_EQ(named_step("W4").layout.micro_batch * named_step("W4").layout.seq_length, 32 * 1024);
  EXPECT_EQ(named_step("W3").layout.sharding.dtype, DType::bf16);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    EXPECT_EQ(named_step("W1", dtype).layout.sharding.dtype, dtype);
    EXPECT_EQ(named_step("W1", dtype).layout.sharding.gradient_dtype, dtype);
  }
  const TrialStep experts = named_step("W5");
  EXPECT_EQ(experts.config.experts->num_experts, 64);
  EXPECT_EQ(experts.config.experts->rule.top_k, 8);
  EXPECT_NEAR(static_cast<double>(experts.config.parameter_count()), 520e6, 5e6);
  const TrialStep states = named_step("W6");
  EXPECT_EQ(std::ranges::count(states.config.layer_kinds, LayerKind::delta), 9);
  EXPECT_NEAR(static_cast<double>(states.config.parameter_count()), 114e6, 1e6);
  EXPECT_THROW(named_step("W7"), ConfigError);
}

TEST(Bench, collectives_in_bf16_stand_beside_as_many_elements_in_f32) {
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    const std::vector<Figure> figures = bench_collectives(ranks, context, DType::bf16, 1, {1});
    ASSERT_EQ(figures.size(), 3u);
    for (const Figure& figure : figures) {
      EXPECT_EQ(figure.work, 1 << 20);
      EXPECT_EQ(figure.limit_name, "as f32");
      EXPECT_EQ(figure.limits.values.size(), 1u);
    }
  });
}

TEST(Bench, one_rank_has_no_collectives) {
  const auto alone = make_self_communicator();
  EXPECT_THROW(bench_collectives(*alone, Context::cpu(), DType::f32, 1, {1}), ConfigError);
}

TEST(Bench, collectives_in_f32_stand_beside_the_memory_that_they_touch) {
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    const std::vector<Figure> figures = bench_collectives(ranks, context, DType::f32, 1, {1});
    ASSERT_EQ(figures.size(), 3u) << "threads have no rival";
    for (const Figure& figure : figures) EXPECT_EQ(figure.limit_name, "memory");
  });
}

TEST(Bench, files_are_removed_after_they_were_measured) {
  const test::TempFolder folder;
  const std::vector<Figure> figures = bench_io(Context::cpu(), folder.path().string(), 1 << 16, 2);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0].work, 1 << 16);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace nought::bench_test
