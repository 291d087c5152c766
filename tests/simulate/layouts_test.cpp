// Layouts are ranked by their time, fit, and keep the global batch; what is left out has its reason.
#include "nought/simulate/layouts.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::layouts_test {
namespace {

using testing::HasSubstr;

SimulatedRun run_of(double layers, double hidden, double batch) {
  SimulatedRun run;
  run.model.name = "llama";
  run.model.layers = layers, run.model.hidden = hidden, run.model.ffn = 3.25 * hidden;
  run.model.heads = hidden / 128, run.model.kv_heads = 8, run.model.head_dim = 128, run.model.vocab = 128256;
  run.software = software_of("megatron-core");
  run.sequence = 8192, run.global_batch = batch;
  return run;
}

LayoutRanking ranked(const SimulatedRun& run, int ranks) {
  return rank_layouts(run, cluster_of("h100x8"), fitted_constants().at("h100"), ranks, 5);
}

std::string reason_of(const LayoutRanking& ranking, const std::string& family) {
  for (const LeftOut& each : ranking.left_out)
    if (each.family == family) return each.reason;
  return "";
}

TEST(Layouts, the_fastest_come_first_and_all_fit_and_keep_the_batch) {
  const LayoutRanking ranking = ranked(run_of(80, 8192, 512), 256);
  ASSERT_EQ(ranking.best.size(), 5);
  for (size_t i = 0; i < ranking.best.size(); ++i) {
    const RankedLayout& each = ranking.best[i];
    EXPECT_EQ(each.run.ranks(), 256);
    EXPECT_EQ(each.run.micro_batches() * each.run.micro_batch * each.run.dp, 512);
    EXPECT_LE(each.memory.total(), 80e9);
    EXPECT_GE(each.step.seconds, ranking.best[i > 0 ? i - 1 : 0].step.seconds);
  }
}

TEST(Layouts, every_family_that_is_left_out_has_its_reason) {
  const LayoutRanking ranking = ranked(run_of(80, 8192, 512), 1024);
  EXPECT_THAT(reason_of(ranking, "tp 16"), HasSubstr("crosses hosts: the fast link has 8 ranks"));
  EXPECT_THAT(reason_of(ranking, "tp 1 pp 128"), HasSubstr("has more stages than 80 layers"));
  EXPECT_THAT(reason_of(ranking, "tp 1 pp 1 cp 1"), HasSubstr("dp 1024 does not divide the global batch of 512"));
  SimulatedRun narrow = run_of(80, 8192, 512);
  narrow.model.heads = 66;
  EXPECT_THAT(reason_of(ranked(narrow, 1024), "tp 4"), HasSubstr("does not divide 66 heads"));
  EXPECT_THAT(reason_of(ranked(run_of(126, 16384, 64), 64), "tp 1 pp 1 cp 1"), HasSubstr("does not fit by"));
}

TEST(Layouts, what_can_not_be_is_said_in_one_line) {
  const auto error_of = [](const SimulatedRun& run, int ranks) {
    return test::message_of<ConfigError>([&] { ranked(run, ranks); });
  };
  EXPECT_THAT(error_of(run_of(126, 16384, 64), 8), HasSubstr("nothing fits"));
  EXPECT_THAT(error_of(run_of(126, 16384, 64), 8), HasSubstr("more ranks, or GPUs with more memory, would"));
  EXPECT_THAT(error_of(run_of(8, 1024, 4), 11), HasSubstr("no layout divides 11 ranks and a global batch of 4"));
}

}  // namespace
}  // namespace nought::layouts_test
