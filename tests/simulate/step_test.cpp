// The time of a step has the limits that arithmetic gives.
#include "nought/simulate/step.h"

#include <gtest/gtest.h>

namespace nought::step_test {
namespace {

SimulatedRun run_of(double tp, double pp, double dp) {
  SimulatedRun run;
  run.model = {.name = "llama",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 14336,
               .vocab = 128256};
  run.software = software_of("megatron-core");
  run.sequence = 8192, run.micro_batch = 1, run.global_batch = 16 * dp;
  run.tp = tp, run.pp = pp, run.dp = dp, run.zero_stage = 1;
  return run;
}

double seconds_of(const SimulatedRun& run, const Cluster& cluster) {
  return simulate_step(run, cluster, fitted_constants().at("h100")).seconds;
}

TEST(Step, one_rank_sends_nothing_and_waits_for_nobody) {
  const SimulatedStep step = simulate_step(run_of(1, 1, 1), cluster_of("h100x8"), fitted_constants().at("h100"));
  EXPECT_EQ(step.tensor + step.context + step.expert + step.pipeline + step.data + step.bubble + step.hidden, 0);
  EXPECT_GT(step.products, 0);
}

TEST(Step, a_pipeline_waits_for_its_stages_and_less_so_interleaved) {
  SimulatedRun run = run_of(1, 8, 1);
  const auto bubble = [&] { return simulate_step(run, cluster_of("h100x8"), fitted_constants().at("h100")).bubble; };
  const double plain = bubble();
  run.schedule = SimulatedSchedule::interleaved, run.vp = 4;
  EXPECT_DOUBLE_EQ(bubble(), plain / 4);
}

TEST(Step, faster_links_never_make_a_step_slower_and_without_traffic_make_no_difference) {
  const Cluster cluster = cluster_of("h100x8");
  Cluster faster = cluster;
  faster.network.bandwidth *= 2, faster.link.bandwidth *= 2, faster.network.latency = faster.link.latency = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const double tp : {1, 8}) {
      SimulatedRun run = run_of(tp, 1, 64);
      run.zero_stage = stage;
      EXPECT_LT(seconds_of(run, faster), seconds_of(run, cluster)) << "stage " << stage << ", tp " << tp;
    }
  EXPECT_EQ(seconds_of(run_of(1, 1, 1), faster), seconds_of(run_of(1, 1, 1), cluster));
}

TEST(Step, twice_the_work_takes_twice_the_time_but_for_what_is_once_a_step) {
  SimulatedRun run = run_of(1, 1, 1);
  const FittedConstants& fitted = fitted_constants().at("h100");
  const SimulatedStep once = simulate_step(run, cluster_of("h100x8"), fitted);
  run.global_batch *= 2;
  EXPECT_NEAR(simulate_step(run, cluster_of("h100x8"), fitted).seconds, 2 * once.seconds - once.update - once.fixed,
              1e-9);
}

TEST(Step, what_is_computed_again_takes_its_time) {
  SimulatedRun run = run_of(1, 1, 1);
  double before = seconds_of(run, cluster_of("h100x8"));
  for (const Recomputed each : {Recomputed::light, Recomputed::products, Recomputed::full}) {
    run.recompute = each;
    const double now = seconds_of(run, cluster_of("h100x8"));
    EXPECT_GT(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace nought::step_test
