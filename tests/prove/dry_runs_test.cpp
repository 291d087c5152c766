// Every rank of a small job has a dry run: its calls meet those of the others, nobody waits in a circle, all that is
// leased is given back, and a resume finds what it reads.
#include "nought/prove/dry_runs.h"

#include "prove/jobs.h"
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/prove/matching.h"
#include "nought/prove/waits.h"

namespace nought::dry_runs_test {
namespace {

using test::model_of;

void expect_proven(const ModelConfig& config, const Layout& layout) {
  const DryRuns runs = run_dry(config, layout);
  const auto mismatch = find_mismatch(runs.ranks);
  EXPECT_FALSE(mismatch) << mismatch->text;
  const WaitGraph graph = follow_waits(runs.ranks);
  EXPECT_FALSE(graph.circle) << graph.circle->text;
  EXPECT_GT(graph.calls, 0);
  for (size_t i = 0; i < runs.held.size(); ++i) {
    const auto leak = find_leak(runs.held[i], runs.classes.chosen[i]);
    EXPECT_FALSE(leak) << leak->text;
  }
  const auto missing = find_missing(runs.saved, runs.asked, runs.classes.chosen);
  EXPECT_FALSE(missing) << missing->text;
}

NOUGHT_SIZE(medium);
TEST(DryRuns, holds_on_meshes_at_every_stage) {
  for (const int stage : {0, 1, 2, 3})
    for (const auto& [tensor, context, pipeline] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 1, 2}}) {
      if (stage >= 2 && pipeline > 1 && tensor > 1) continue;
      Layout layout = test::job_of_four(stage, tensor, context, pipeline);
      layout.micro_batch = 2, layout.evaluation_rows = 2;
      SCOPED_TRACE(fmt::format("tensor {}, context {}, pipeline {}: {}", tensor, context, pipeline, layout.str()));
      expect_proven(model_of("llama", 4), layout);
    }
}

}  // namespace
}  // namespace nought::dry_runs_test
